//! Checks whether the part of a volume that will be cut off contains data.

use std::pin::pin;
use std::sync::{Arc, Weak};
use std::time::Duration;

use block::{Allocation, BlockDevice, Blocks, Buffer, DeviceError, Extent, Lba};
use volume::spec::Bytes;

use crate::config::values::VolumeName;
use crate::waiting::answered;
use backends::Failure;

/// Fails if a volume that will be shrunk to `bytes` has data after this length. If the volume contains a file
/// system of known length that ends earlier, data after the end of the file system does not count: it is left
/// over from before the file system was shrunk.
///
/// # Errors
/// There is data, or the device fails, or the check takes too long.
pub(crate) async fn check(
    name: &VolumeName,
    device: &dyn BlockDevice,
    bytes: Bytes,
) -> Result<(), Failure> {
    let checked = reactor::timeout(CHECK_TIME, has_no_data_behind(name, device, bytes)).await;
    checked.unwrap_or_else(|_| {
        let seconds = CHECK_TIME.as_secs();
        Err(Failure::refused(format!(
            "volume {name} is not shrunk to {bytes}: the part after it could not be read within {seconds} s; if it \
             has no data, add --discard-data"
        )))
    })
}

/// [`check`] for a volume that is `served`. Other orders do not wait for the check. An order that closes the
/// volume ends the check, because its file could not be opened again while the check uses the device.
pub(crate) async fn check_served<T>(
    name: &VolumeName,
    device: Arc<dyn BlockDevice>,
    served: &Weak<T>,
    bytes: Bytes,
) -> Result<(), Failure> {
    let mut checked = pin!(check(name, device.as_ref(), bytes));
    loop {
        match reactor::timeout(LOOK_STEP, &mut checked).await {
            Ok(outcome) => return outcome,
            Err(_) if served.strong_count() == 0 => {
                return Err(Failure::refused(format!(
                    "volume {name} is not shrunk to {bytes}: it has been closed"
                )));
            }
            Err(_) => {}
        }
    }
}

/// Interval at which the check detects that the volume was closed. Reopening a file waits longer than this.
const LOOK_STEP: Duration = Duration::from_millis(50);
/// Maximum duration of a check. During the second check, the volume is out of service and other orders wait.
/// Two checks and a close take less time than the timeout of the control socket's client.
const CHECK_TIME: Duration = Duration::from_secs(60);

async fn has_no_data_behind(
    name: &VolumeName,
    device: &dyn BlockDevice,
    bytes: Bytes,
) -> Result<(), Failure> {
    let failed = |error| Failure::device(format_args!("volume {name} cannot be examined"), error);
    let refused = |why: String| {
        Failure::refused(format!(
            "volume {name} is not shrunk to {bytes}: {why}; shrink its file system or partitions first, or add \
             --discard-data"
        ))
    };
    let system = answered(disk_contents::file_system_bytes(device))
        .await
        .map_err(failed)?;
    match system {
        Some(length) if length > bytes.0 => {
            return Err(refused(format!("its file system has {length} bytes")));
        }
        Some(_) => return Ok(()),
        None => {}
    }
    match first_data(device, bytes.0).await.map_err(failed)? {
        None => Ok(()),
        Some(at) => {
            let found = answered(disk_contents::contents(device))
                .await
                .map_err(failed)?;
            let found = found.map_or_else(String::new, |found| format!(", and it has {found}"));
            Err(refused(format!(
                "there is data after that size, from byte {at}{found}"
            )))
        }
    }
}

/// Returns the position of the first block at or after byte `from` that is not all zeros.
async fn first_data(device: &dyn BlockDevice, from: u64) -> Result<Option<u64>, DeviceError> {
    const STEP_BYTES: u64 = 1 << 20;
    const RUNS: usize = 64;
    let geometry = device.geometry();
    let step = Blocks((STEP_BYTES >> geometry.block_size.shift()).max(1));
    let mut at = from >> geometry.block_size.shift();
    while at < geometry.blocks.0 {
        let rest = Extent {
            lba: Lba(at),
            blocks: Blocks(geometry.blocks.0 - at),
        };
        for run in answered(device.allocation(rest, RUNS)).await? {
            let end = run.extent.lba.0 + run.extent.blocks.0;
            debug_assert!(
                at < end && end <= geometry.blocks.0,
                "runs are parts of the request, in order"
            );
            while run.allocation == Allocation::Mapped && at < end {
                debug_assert!(step.0 > 0);
                let piece = Extent {
                    lba: Lba(at),
                    blocks: Blocks(step.0.min(end - at)),
                };
                let buffer = Buffer::recycled(geometry.length(piece) as usize);
                let data = answered(device.read(piece, buffer)).await?;
                if let Some(byte) = data.iter().position(|byte| *byte != 0) {
                    return Ok(Some(geometry.offset(piece) + byte as u64));
                }
                at += piece.blocks.0;
            }
            at = end;
        }
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    use block::{BlockSize, Fault, FaultControl, Geometry, Null, Pending, Run};
    use host::ReactorClock;

    use super::*;

    /// A device on which all zeros were written, so that it has no holes.
    struct Zeros(Null);

    impl BlockDevice for Zeros {
        block::forward!(self => self.0; geometry, profile, read, write, flush, unmap, write_zeroes, losses, quiesced);

        fn allocation(&self, extent: Extent, _: usize) -> Pending<'_, Vec<Run>> {
            Box::pin(async move {
                Ok(vec![Run {
                    extent,
                    allocation: Allocation::Mapped,
                }])
            })
        }
    }

    /// Checks an empty 256 MiB device before it is shrunk to 1 MiB. Returns the result and the duration.
    fn checked(misbehave: impl FnOnce(&FaultControl)) -> (Option<String>, Duration) {
        let geometry = Geometry {
            block_size: BlockSize::B512,
            blocks: Blocks(1 << 19),
            physical_exponent: 0,
        };
        let faults = FaultControl::default();
        let device = Fault::new(
            Zeros(Null::new(geometry)),
            Arc::new(ReactorClock),
            faults.clone(),
        );
        misbehave(&faults);
        reactor::block_on(reactor::Alone::virtual_time(), async {
            let begin = reactor::now();
            let outcome = check(&"v".parse().expect("a name"), &device, Bytes(1 << 20)).await;
            (
                outcome.err().map(|why| why.to_string()),
                reactor::now() - begin,
            )
        })
    }

    #[test]
    fn a_check_releases_the_device_of_a_volume_that_is_closed_meanwhile() {
        let geometry = Geometry {
            block_size: BlockSize::B512,
            blocks: Blocks(1 << 19),
            physical_exponent: 0,
        };
        let faults = FaultControl::default();
        faults.hang();
        let device: Arc<dyn BlockDevice> = Arc::new(Fault::new(
            Zeros(Null::new(geometry)),
            Arc::new(ReactorClock),
            faults,
        ));
        let served = Arc::new(());
        let (weak, held) = (Arc::downgrade(&served), Arc::downgrade(&device));
        reactor::block_on(reactor::Alone::virtual_time(), async move {
            let begin = reactor::now();
            reactor::spawn(async move {
                reactor::sleep(Duration::from_secs(1)).await;
                drop(served);
            });
            let outcome =
                check_served(&"v".parse().expect("a name"), device, &weak, Bytes(1 << 20)).await;
            assert!(outcome.is_err_and(|why| why.to_string().contains("it has been closed")));
            assert_eq!(held.strong_count(), 0);
            assert!(reactor::now() - begin < Duration::from_secs(2));
        });
    }

    #[test]
    fn a_check_of_a_device_that_does_not_answer_ends() {
        assert_eq!(checked(|_| {}), (None, Duration::ZERO));
        let (told, waited) = checked(FaultControl::hang);
        assert!(told.is_some_and(|told| told.contains("timed out")));
        assert_eq!(waited, Duration::from_secs(10));
        let (told, waited) = checked(|faults| faults.slow(Duration::from_secs(1)));
        assert!(told.is_some_and(|told| told.contains("could not be read within 60 s")));
        assert_eq!(waited, Duration::from_secs(60));
    }
}
