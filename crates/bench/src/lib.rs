//! Workloads, histograms and statistics over any block device.
