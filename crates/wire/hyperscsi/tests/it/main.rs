//! Frames byte by byte, and scenes between both state machines.

mod fair;
mod floods;
mod frames;
mod hostile;
mod pair;
mod scenes;
mod shares;
mod tshark;
