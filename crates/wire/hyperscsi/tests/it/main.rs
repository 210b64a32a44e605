//! Frames byte by byte, and scenes between both machines.

mod fair;
mod floods;
mod frames;
mod hostile;
mod pair;
mod scenes;
mod shares;
mod tshark;
