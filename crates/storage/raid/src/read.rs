//! Reads from a set.

use std::sync::Arc;

use block::{Buffer, DeviceError, Durability, Extent};

use crate::concurrency::all;
use crate::layout::Piece;
use crate::members::{Unread, in_set};
use crate::plan::{Method, Plan, Stripe, recover};
use crate::set::{Set, graver, halves};

/// Maximum number of pieces of one request that are read concurrently.
const PIECES_AT_ONCE: usize = 32;

impl Set {
    pub(crate) async fn read(
        self: &Arc<Self>,
        extent: Extent,
        mut buffer: Buffer,
    ) -> Result<Buffer, DeviceError> {
        self.check(extent, Some(buffer.len()))?;
        let mut pieces = self.layout.pieces(extent).peekable();
        let Some(first) = pieces.next() else {
            return Ok(buffer);
        };
        if pieces.peek().is_none() {
            return self.read_piece(extent, first, Some(buffer)).await;
        }
        let mut waiting = Vec::new();
        for piece in std::iter::once(first).chain(pieces) {
            if !self.read_piece_nowait(piece, self.bytes_of(piece, &mut buffer)) {
                waiting.push(piece);
            }
            if waiting.len() == PIECES_AT_ONCE {
                self.read_pieces(extent, &waiting, &mut buffer).await?;
                waiting.clear();
            }
        }
        self.read_pieces(extent, &waiting, &mut buffer).await?;
        Ok(buffer)
    }

    async fn read_pieces(
        self: &Arc<Self>,
        extent: Extent,
        pieces: &[Piece],
        buffer: &mut Buffer,
    ) -> Result<(), DeviceError> {
        let results = all(pieces
            .iter()
            .map(|piece| self.read_piece(extent, *piece, None)))
        .await;
        for (piece, result) in pieces.iter().zip(results) {
            self.bytes_of(*piece, buffer).copy_from_slice(&result?);
        }
        Ok(())
    }

    /// Fills `buffer` if this is possible without waiting for a member.
    pub(crate) fn read_nowait(&self, extent: Extent, buffer: &mut [u8]) -> bool {
        self.check(extent, Some(buffer.len())).is_ok()
            && self
                .layout
                .pieces(extent)
                .all(|piece| self.read_piece_nowait(piece, self.bytes_of(piece, buffer)))
    }

    fn bytes_of<'a>(&self, piece: Piece, buffer: &'a mut [u8]) -> &'a mut [u8] {
        let start = self.bytes(piece.offset);
        debug_assert!(
            start + self.bytes(piece.blocks) <= buffer.len(),
            "a piece of the request"
        );
        &mut buffer[start..start + self.bytes(piece.blocks)]
    }

    fn read_piece_nowait(&self, piece: Piece, buffer: &mut [u8]) -> bool {
        let strip = if self.layout.has_parity() {
            Some(piece.strip)
        } else if self.is_unsynced(piece.stripe) {
            None
        } else {
            self.fastest_copy(piece.stripe, &[])
        };
        let Some(strip) = strip else { return false };
        let (member, extent) = self.place(piece.stripe, strip, &piece.columns());
        self.members
            .holder(member, piece.stripe)
            .is_some_and(|member| member.device.read_nowait(extent, buffer) && member.is_certain())
            // Check this last, so that blocks that become lost during the read are not returned.
            && self.members.lost_of(member, extent).is_none()
    }

    /// Reads one piece of `request`, into `buffer` if the piece is the whole request.
    async fn read_piece(
        self: &Arc<Self>,
        request: Extent,
        piece: Piece,
        buffer: Option<Buffer>,
    ) -> Result<Buffer, DeviceError> {
        let buffer = buffer.unwrap_or_else(|| Buffer::recycled(self.bytes(piece.blocks)));
        let lba = request.lba.0 + piece.offset;
        match self.read_columns(piece, buffer).await {
            Err(DeviceError::Unreadable(_)) if piece.blocks > 1 => {
                self.read_in_parts(piece, lba).await
            }
            result => result.map_err(|error| {
                let (_, extent) = self.place(piece.stripe, piece.strip, &piece.columns());
                in_set(error, extent, lba)
            }),
        }
    }

    async fn read_columns(
        self: &Arc<Self>,
        piece: Piece,
        buffer: Buffer,
    ) -> Result<Buffer, DeviceError> {
        match self.layout.has_parity() {
            true => self.read_data(piece, buffer).await,
            false => self.read_copy(piece, buffer).await,
        }
    }

    /// Reads a piece block by block, because several members have unreadable blocks in it. Each of these
    /// blocks is then reconstructed separately. The piece begins at block `lba` of the set.
    async fn read_in_parts(
        self: &Arc<Self>,
        piece: Piece,
        lba: u64,
    ) -> Result<Buffer, DeviceError> {
        let mut whole = Buffer::recycled(self.bytes(piece.blocks));
        let mut parts = vec![piece.columns()];
        while let Some(columns) = parts.pop() {
            let (column, blocks) = (columns.start, columns.end - columns.start);
            let part = Piece {
                column,
                blocks,
                ..piece
            };
            match self
                .read_columns(part, Buffer::recycled(self.bytes(blocks)))
                .await
            {
                Ok(data) => {
                    let start = self.bytes(column - piece.column);
                    whole[start..start + data.len()].copy_from_slice(&data);
                }
                Err(error @ DeviceError::Unreadable(_)) => match halves(&columns) {
                    Some([first, second]) => parts.extend([second, first]),
                    None => {
                        let (_, extent) = self.place(piece.stripe, piece.strip, &columns);
                        return Err(in_set(error, extent, lba + column - piece.column));
                    }
                },
                Err(error) => return Err(error),
            }
        }
        Ok(whole)
    }

    async fn read_data(
        self: &Arc<Self>,
        piece: Piece,
        buffer: Buffer,
    ) -> Result<Buffer, DeviceError> {
        let (member, extent) = self.place(piece.stripe, piece.strip, &piece.columns());
        let bad = match self
            .members
            .read(member, piece.stripe, extent, buffer)
            .await
        {
            Ok(buffer) => return Ok(buffer),
            Err(Unread::Lacking) => None,
            Err(Unread::Bad(error)) => Some(error),
        };
        debug_assert!(piece.strip < self.layout.data_strips());
        let set = Arc::clone(self);
        // The operation may rewrite reconstructed blocks, so it must run to completion.
        self.operations
            .run(async move { set.recover_data(piece, bad).await })
            .await
    }

    /// Reads a strip in degraded mode: reconstructs it from the others, and rewrites the blocks that its
    /// member could not read.
    async fn recover_data(
        self: &Arc<Self>,
        piece: Piece,
        error: Option<DeviceError>,
    ) -> Result<Buffer, DeviceError> {
        let _permit = self.permits.take().await;
        let _locked = self
            .locks
            .share(self.layout.stripe_extent(piece.stripe))
            .await;
        let bad = if error.is_some() {
            vec![piece.strip]
        } else {
            Vec::new()
        };
        let may_be_wrong = self.is_unsynced(piece.stripe);
        let plan = |stripe: &Stripe| {
            let reads = match piece.strip {
                // The member may have become in sync in the meantime.
                strip if stripe.readable[strip] => Some(vec![strip]),
                // If the member has the strip but parity may be inconsistent, return an error. Reconstructed
                // data might be wrong, and would overwrite the strip.
                strip if stripe.held[strip] && may_be_wrong => None,
                _ => stripe.recovery(),
            };
            reads.map(|reads| Plan {
                method: Method::Reconstruct,
                reads,
            })
        };
        let columns = piece.columns();
        let mut gathered = self
            .gather(piece.stripe, &columns, bad, error, plan)
            .await?;
        if gathered.strips[piece.strip].is_none() {
            let length = self.bytes(piece.blocks);
            recover(&mut gathered.strips, self.layout.data_strips(), length);
        }
        let data = gathered.strips[piece.strip]
            .take()
            .ok_or(DeviceError::NotReady)?;
        if gathered.bad.contains(&piece.strip) {
            let copy = Buffer::from(&data[..]).share();
            // If this also fails, the member has been marked failed, or its blocks stay unreadable.
            let _ = self
                .write_strip(
                    piece.stripe,
                    piece.strip,
                    &columns,
                    copy,
                    Durability::Cached,
                )
                .await;
            let _ = self.members.settle_healed().await;
        }
        Ok(data)
    }

    async fn read_copy(
        self: &Arc<Self>,
        piece: Piece,
        mut buffer: Buffer,
    ) -> Result<Buffer, DeviceError> {
        if self.is_unsynced(piece.stripe) && !self.profile.read_only {
            let set = Arc::clone(self);
            let synchronised = self
                .operations
                .run(async move { set.synchronise_before_read(piece.stripe).await });
            if synchronised.await.is_err() {
                // The last copy cannot be written, but it may be readable.
                self.members.check_service()?;
            }
        }
        if self.is_unsynced(piece.stripe) {
            return self.read_chosen(piece.stripe, &piece.columns()).await;
        }
        let mut bad = Vec::new();
        let mut error = None;
        while let Some(copy) = self.fastest_copy(piece.stripe, &bad) {
            let (member, extent) = self.place(piece.stripe, copy, &piece.columns());
            match self
                .members
                .read(member, piece.stripe, extent, buffer)
                .await
            {
                Ok(buffer) if bad.is_empty() => return Ok(buffer),
                Ok(buffer) => {
                    let set = Arc::clone(self);
                    let rewritten = self
                        .operations
                        .run(async move { set.rewrite_copies(piece, &bad).await });
                    // The data is available even if the bad copies could not be rewritten.
                    let _ = rewritten.await;
                    return Ok(buffer);
                }
                Err(Unread::Lacking) => {}
                Err(Unread::Bad(why)) => {
                    error = Some(graver(error, why));
                    bad.push(copy);
                }
            }
            buffer = Buffer::recycled(self.bytes(piece.blocks));
        }
        Err(error.unwrap_or(DeviceError::NotReady))
    }

    /// Synchronises a stripe before it is first read. After a crash, the copies of a stripe may differ. If
    /// one copy were read and its member failed later, a read of another copy could return older data. So the
    /// copies are made equal, on stable storage, before the first read of the stripe completes.
    async fn synchronise_before_read(self: &Arc<Self>, stripe: u64) -> Result<(), DeviceError> {
        let _locked = self.lock_stripe(stripe).await;
        if self.is_unsynced(stripe) {
            self.members.check_service()?;
            self.synchronise(stripe, Durability::Stable).await?;
        }
        Ok(())
    }

    /// Rewrites unreadable copies from a readable one.
    async fn rewrite_copies(
        self: &Arc<Self>,
        piece: Piece,
        bad: &[usize],
    ) -> Result<(), DeviceError> {
        let _permit = self.permits.take().await;
        let columns = piece.columns();
        let start = self.layout.stripe_extent(piece.stripe).lba.0;
        let _locked = self
            .locks
            .exclude(Extent::new(start + columns.start, piece.blocks))
            .await;
        debug_assert!(!bad.is_empty() && bad.len() <= self.layout.strips());
        let Some(good) = self.fastest_copy(piece.stripe, bad) else {
            return Ok(());
        };
        let Ok(data) = self.read_strip(piece.stripe, good, &columns).await else {
            return Ok(());
        };
        let data = data.share();
        for copy in bad {
            self.write_strip(
                piece.stripe,
                *copy,
                &columns,
                data.clone(),
                Durability::Cached,
            )
            .await?;
        }
        self.members.settle_healed().await
    }

    /// Returns the copy to read, other than `bad`. While the copies may differ, this is always the first one,
    /// because two reads could otherwise return different data.
    pub(crate) fn fastest_copy(&self, stripe: u64, bad: &[usize]) -> Option<usize> {
        debug_assert!(
            !self.layout.has_parity(),
            "strips with parity are no copies"
        );
        let copies = || (0..self.layout.strips()).filter(|copy| !bad.contains(copy));
        if self.is_unsynced(stripe) {
            return copies().find(|copy| self.is_held(stripe, *copy));
        }
        let member = self.members.fastest(
            stripe,
            copies().map(|copy| self.layout.strip(stripe, copy).member),
        )?;
        self.layout.strip_of(stripe, member)
    }
}
