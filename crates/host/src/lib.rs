//! The real world behind the reactor's interface: epoll, io_uring, files, memory; the home of unsafe.
