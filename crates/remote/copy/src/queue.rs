//! A queue of concurrent work with a bounded depth: the next piece starts when one has ended.

use std::future::Future;

use reactor::{Receiver, Sender, mailbox};

/// Tasks on this thread's reactor, returned in the order in which they end.
pub(crate) struct Queue<T> {
    ended: Receiver<T>,
    end: Sender<T>,
    under_way: usize,
    depth: usize,
}

impl<T: Send + 'static> Queue<T> {
    /// For at most `depth` at once.
    pub(crate) fn new(depth: usize) -> Queue<T> {
        let (end, ended) = mailbox();
        Queue { ended, end, under_way: 0, depth }
    }

    pub(crate) fn is_full(&self) -> bool {
        self.under_way >= self.depth
    }

    /// Begins one more, whether it is full or not.
    pub(crate) fn start(&mut self, work: impl Future<Output = T> + 'static) {
        let end = self.end.clone();
        self.under_way += 1;
        reactor::spawn(async move {
            // The receiver is dropped only if the process is about to end.
            let _ = end.send(work.await);
        });
    }

    /// What the next piece of work came to; nothing if none is under way.
    pub(crate) async fn next(&mut self) -> Option<T> {
        if self.under_way == 0 {
            return None;
        }
        self.under_way -= 1;
        self.ended.recv().await
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use backends::remote;
    use std::time::Duration;

    #[test]
    fn what_ends_first_comes_first_and_then_nothing() {
        let order = remote::run(async {
            let mut queue = Queue::new(2);
            for ms in [20, 0] {
                queue.start(async move {
                    reactor::sleep(Duration::from_millis(ms)).await;
                    ms
                });
            }
            assert!(queue.is_full());
            Ok((queue.next().await, queue.next().await, queue.next().await))
        });
        assert_eq!(order.expect("a world"), (Some(0), Some(20), None));
    }
}
