//! Portals, targets, LUN maps, access control and sessions: front ends joined to devices.
