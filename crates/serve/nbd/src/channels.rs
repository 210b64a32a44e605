//! The connections that clients have named. With these names, a client can request that the server terminate
//! the client's own lost connections.
//!
//! If a handshake names lost connections, the server answers it only once these have ended: their sockets are
//! no longer read, and their requests have completed or been cancelled. A request that the device cannot
//! cancel keeps its blocks locked until the device has quiesced, like any aborted request. Therefore no
//! request of a terminated connection can reach the medium after a request of the new connection.

use std::collections::HashMap;
use std::future::poll_fn;
use std::hash::{BuildHasher as _, Hasher as _, RandomState};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::task::{Poll, Waker};

use block::Lock;
use nbd::ChannelName;
use volume::Volume;

type Key = (u128, u64);

/// All named connections of a server.
pub(crate) struct Channels {
    named: Lock<HashMap<Key, Entry>>,
    /// A random number that identifies this run of the server.
    start: u128,
}

impl Default for Channels {
    fn default() -> Channels {
        // The standard library takes hash keys from the system's random source.
        let random = || u128::from(RandomState::new().build_hasher().finish());
        Channels {
            named: Lock::default(),
            start: random() << 64 | random(),
        }
    }
}

struct Entry {
    has_to_end: Arc<AtomicBool>,
    waiting: Vec<Waker>,
}

/// A named connection. Dropping it marks the connection as ended.
pub(crate) struct Channel {
    channels: Arc<Channels>,
    pub(crate) key: Key,
    has_to_end: Arc<AtomicBool>,
}

impl Channels {
    /// Returns a number whose change indicates to clients of this volume that acknowledged writes may have
    /// been lost. The number is the volume's [cache generation](Volume::cache_generation), which a restart
    /// without losses does not change. A client that mistook such a restart for a loss would replay writes
    /// that another host has since replaced. If a volume has no cache generation, the number changes at each
    /// start of the server and each opening of the volume, because each may have lost writes.
    pub(crate) fn start(&self, volume: &Volume) -> u128 {
        match volume.cache_generation() {
            Some(generation) => u128::from_be_bytes(generation),
            None => {
                let (opening, losses) = (
                    u128::from(volume.opening()),
                    u128::from(volume.lost_writes()),
                );
                self.start.wrapping_add(opening << 64 | losses)
            }
        }
    }

    /// Registers a connection. `None` if the name is in use.
    pub(crate) fn register(self: &Arc<Self>, name: &ChannelName) -> Option<Channel> {
        let (key, has_to_end) = ((name.session, name.number), Arc::<AtomicBool>::default());
        let mut named = self.named.lock();
        if named.contains_key(&key) {
            return None;
        }
        named.insert(
            key,
            Entry {
                has_to_end: Arc::clone(&has_to_end),
                waiting: Vec::new(),
            },
        );
        drop(named);
        Some(Channel {
            channels: Arc::clone(self),
            key,
            has_to_end,
        })
    }

    /// Marks the connections that `name` requires to end. Returns the connections that have not ended yet.
    pub(crate) fn condemn(&self, name: &ChannelName) -> Vec<Key> {
        let named = self.named.lock();
        let ended = name.ended.iter().map(|number| (name.session, *number));
        let lingering = ended.filter(|key| match named.get(key) {
            Some(entry) => {
                entry.has_to_end.store(true, SeqCst);
                true
            }
            None => false,
        });
        lingering.collect()
    }

    /// Waits until these connections have ended.
    pub(crate) async fn ended(&self, keys: &[Key]) {
        for key in keys {
            poll_fn(|cx| match self.named.lock().get_mut(key) {
                Some(entry) => {
                    entry.waiting.push(cx.waker().clone());
                    Poll::Pending
                }
                None => Poll::Ready(()),
            })
            .await;
        }
    }
}

impl Channel {
    /// Whether the client has lost this connection, so that it has to end.
    pub(crate) fn has_to_end(&self) -> bool {
        self.has_to_end.load(SeqCst)
    }
}

impl Drop for Channel {
    fn drop(&mut self) {
        let ended = self.channels.named.lock().remove(&self.key);
        debug_assert!(
            ended.is_some(),
            "a channel has its name until this is dropped"
        );
        ended
            .into_iter()
            .flat_map(|entry| entry.waiting)
            .for_each(Waker::wake);
    }
}

#[cfg(test)]
mod tests {
    use reactor::Alone;

    use super::*;

    fn name(session: u128, number: u64, ended: &[u64]) -> ChannelName {
        ChannelName {
            session,
            number,
            ended: ended.to_vec(),
            start: 0,
            volume: None,
        }
    }

    /// Opens a volume with this cache generation.
    fn opened(cache_generation: Option<volume::CacheGeneration>) -> Arc<Volume> {
        let block_size = block::BlockSize::B512;
        let blocks = block_size.exact(1 << 20).expect("whole blocks");
        let device = block::Null::new(block::Geometry {
            block_size,
            blocks,
            physical_exponent: 0,
        });
        let options = volume::VolumeOptions {
            cache_generation,
            ..volume::VolumeOptions::default()
        };
        Volume::new(Arc::new(device), options).expect("nothing saved")
    }

    #[test]
    fn a_server_that_was_restarted_and_has_lost_nothing_has_the_same_start() {
        let [before, after] = [Channels::default(), Channels::default()];
        let start = |channels: &Channels, generation| channels.start(&opened(Some(generation)));
        assert_eq!(start(&before, [1; 16]), start(&after, [1; 16]));
        assert_ne!(
            start(&before, [1; 16]),
            start(&after, [2; 16]),
            "its cache is another one"
        );
    }

    #[test]
    fn a_volume_whose_cache_is_not_known_has_another_start_each_time_it_is_opened() {
        let channels = Channels::default();
        let [before, again] = [opened(None), opened(None)].map(|volume| channels.start(&volume));
        assert_ne!(before, again);
    }

    #[test]
    fn a_successor_waits_for_the_connections_that_it_names_and_for_no_others() {
        reactor::block_on(Alone::virtual_time(), async {
            let channels = Arc::<Channels>::default();
            let lost = channels
                .register(&name(1, 0, &[]))
                .expect("the name is free");
            let used = channels
                .register(&name(1, 1, &[]))
                .expect("the name is free");
            let of_another = channels
                .register(&name(2, 0, &[]))
                .expect("the name is free");
            assert!(
                channels.register(&name(1, 1, &[])).is_none(),
                "the name is taken"
            );
            let condemned = channels.condemn(&name(1, 2, &[0, 7]));
            assert_eq!(
                condemned,
                [(1, 0)],
                "the other connection has ended long ago"
            );
            assert!(lost.has_to_end() && !used.has_to_end() && !of_another.has_to_end());
            let waiting = Arc::clone(&channels);
            let successor = reactor::spawn(async move { waiting.ended(&condemned).await });
            reactor::yield_now().await;
            assert!(!successor.is_finished());
            drop(lost);
            successor.await;
            assert!(channels.register(&name(1, 0, &[])).is_some());
        });
    }
}
