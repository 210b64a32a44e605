//! Frames byte by byte, and scenes between both machines.

mod frames;
mod hostile;
mod pair;
mod scenes;
mod tshark;
