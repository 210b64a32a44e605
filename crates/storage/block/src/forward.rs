//! What a layer passes to its inner device unchanged.

/// Implements the named methods of [`BlockDevice`](crate::BlockDevice) by calls of the same methods of another device, within the
/// layer's `impl`. Methods that are neither named nor written out keep the trait's defaults, which say that the device does not
/// have the feature.
///
/// ```
/// use block::{BlockDevice, Durability, Extent, Pending, Slice};
///
/// /// Every write reaches stable storage.
/// struct Stable<D>(D);
///
/// impl<D: BlockDevice> BlockDevice for Stable<D> {
///     block::forward!(self => self.0; geometry, profile, read, flush, losses, unmap, write_zeroes, allocation, quiesced);
///
///     fn write(&self, extent: Extent, data: Slice, _: Durability) -> Pending<'_, ()> {
///         self.0.write(extent, data, Durability::Stable)
///     }
/// }
/// # let geometry = block::Geometry { block_size: block::BlockSize::B512, blocks: block::Blocks(8), physical_exponent: 0 };
/// # assert_eq!(Stable(block::Null::new(geometry)).geometry().blocks.0, 8);
/// ```
#[macro_export]
macro_rules! forward {
    ($self:ident => $inner:expr; $($method:ident),+) => {
        $($crate::forward!(@$method $self, $inner);)+
    };
    (@geometry $self:ident, $inner:expr) => {
        fn geometry(&$self) -> $crate::Geometry {
            ($inner).geometry()
        }
    };
    (@length_bytes $self:ident, $inner:expr) => {
        fn length_bytes(&$self) -> u64 {
            ($inner).length_bytes()
        }
    };
    (@profile $self:ident, $inner:expr) => {
        fn profile(&$self) -> $crate::Profile {
            ($inner).profile()
        }
    };
    (@memory $self:ident, $inner:expr) => {
        fn memory(&$self, extent: $crate::Extent) -> Option<$crate::Region> {
            ($inner).memory(extent)
        }
    };
    (@memory_to_write $self:ident, $inner:expr) => {
        fn memory_to_write(&$self, extent: $crate::Extent) -> Option<$crate::WholeBlocks> {
            ($inner).memory_to_write(extent)
        }
    };
    (@read_nowait $self:ident, $inner:expr) => {
        fn read_nowait(&$self, extent: $crate::Extent, buffer: &mut [u8]) -> bool {
            ($inner).read_nowait(extent, buffer)
        }
    };
    (@write_nowait $self:ident, $inner:expr) => {
        fn write_nowait(&$self, extent: $crate::Extent, data: &[u8]) -> bool {
            ($inner).write_nowait(extent, data)
        }
    };
    (@read $self:ident, $inner:expr) => {
        fn read(&$self, extent: $crate::Extent, buffer: $crate::Buffer) -> $crate::Pending<'_, $crate::Buffer> {
            ($inner).read(extent, buffer)
        }
    };
    (@write $self:ident, $inner:expr) => {
        fn write(
            &$self,
            extent: $crate::Extent,
            data: $crate::Slice,
            durability: $crate::Durability,
        ) -> $crate::Pending<'_, ()> {
            ($inner).write(extent, data, durability)
        }
    };
    (@compare_and_write $self:ident, $inner:expr) => {
        fn compare_and_write(
            &$self,
            extent: $crate::Extent,
            expected: &$crate::Slice,
            data: &$crate::Slice,
        ) -> Option<$crate::Pending<'_, $crate::Compared>> {
            ($inner).compare_and_write(extent, expected, data)
        }
    };
    // Nobody passes one on without the other.
    (@losses $self:ident, $inner:expr) => {
        fn losses(&$self) -> $crate::Losses {
            ($inner).losses()
        }

        fn resolve_losses(&$self) -> $crate::Pending<'_, ()> {
            ($inner).resolve_losses()
        }
    };
    (@unmap $self:ident, $inner:expr) => {
        fn unmap(&$self, extent: $crate::Extent) -> $crate::Pending<'_, ()> {
            ($inner).unmap(extent)
        }
    };
    (@write_zeroes $self:ident, $inner:expr) => {
        fn write_zeroes(&$self, extent: $crate::Extent, may_unmap: bool) -> $crate::Pending<'_, ()> {
            ($inner).write_zeroes(extent, may_unmap)
        }
    };
    (@allocation $self:ident, $inner:expr) => {
        fn allocation(
            &$self,
            extent: $crate::Extent,
            runs_max: usize,
        ) -> $crate::Pending<'_, Vec<$crate::Run>> {
            ($inner).allocation(extent, runs_max)
        }
    };
    (@space $self:ident, $inner:expr) => {
        fn space(&$self) -> $crate::Pending<'_, $crate::Space> {
            ($inner).space()
        }
    };
    (@allocated_bytes $self:ident, $inner:expr) => {
        fn allocated_bytes(&$self) -> Option<u64> {
            ($inner).allocated_bytes()
        }
    };
    (@grow $self:ident, $inner:expr) => {
        fn grow(&$self, bytes: u64) -> $crate::Pending<'_, ()> {
            ($inner).grow(bytes)
        }
    };
    (@take_os_error $self:ident, $inner:expr) => {
        fn take_os_error(&$self) -> Option<i32> {
            ($inner).take_os_error()
        }
    };
    // Requests without an extent: `flush`, `refresh`, `quiesced`.
    (@$request:ident $self:ident, $inner:expr) => {
        fn $request(&$self) -> $crate::Pending<'_, ()> {
            ($inner).$request()
        }
    };
}
