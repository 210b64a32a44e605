//! The record of a volume that was served before, and what it permits a start: which missing files are created, with which length
//! a file is opened that is to grow, and that a volume has not become smaller.

use volume::backend::Creation;
use volume::spec::{Bytes, Spec};

use crate::config::{self, Volume};
use crate::difference::{growth, size};
use crate::state::Kept;
use backends::Failure;
use backends::raid::{file_of, is_one_file};

impl Kept {
    /// Which missing files of the volume are created: none if it was served before, but those of which the specification orders it, and
    /// that counts once.
    pub(crate) fn creation(&self, volume: &Volume) -> Creation {
        match (&self.spec, self.served_as()) {
            (None, _) => Creation::Free,
            (_, Some(before)) if before.orders_creation() && volume.spec.orders_creation() => Creation::Never,
            _ => Creation::Ordered,
        }
    }

    /// If the volume is to grow: its new length, and its specification with the length of before. Orders are those of now.
    pub(crate) fn growing(&self, volume: &Volume) -> Option<(Bytes, Spec)> {
        let before = self.served_as()?;
        let bytes = growth(&before, &volume.spec)?;
        let former = config::with_size(&volume.spec.to_string(), size(&before)?)?;
        Some((bytes, backends::parse(&former).ok()?))
    }

    /// Refuses a smaller `size=` of a store of before, which is not even opened with it: a RAID set would go on without that member.
    pub(crate) fn check_sizes(&self, volume: &Volume) -> Result<(), Failure> {
        let (Some(before), Some(bytes)) = (self.served_as(), self.bytes) else { return Ok(()) };
        let (kept, now) = (stores(&before), stores(&volume.spec));
        // After an order to shrink it the kept length is the smaller one already.
        let is_cut = |old: &Bytes, new: &Bytes| new.0 < old.0 && (now.len() > 1 || new.0 < bytes);
        let sizes = now.iter().filter_map(|store| {
            let former = kept.iter().find(|former| is_same(former, store))?;
            Some((size(former)?, size(store)?))
        });
        match sizes.into_iter().find(|(old, new)| is_cut(old, new)) {
            Some((old, new)) => Err(self.cut(volume, old, new)),
            None => Ok(()),
        }
    }

    /// Refuses a volume that has become smaller without an order, if a store of it is one of before.
    pub(crate) fn check_length(&self, volume: &Volume, bytes: u64) -> Result<(), Failure> {
        let (Some(kept), Some(before)) = (self.served_as(), self.bytes) else { return Ok(()) };
        let (kept, now) = (stores(&kept), stores(&volume.spec));
        match bytes < before && now.iter().any(|store| kept.iter().any(|former| is_same(former, store))) {
            true => Err(self.cut(volume, Bytes(before), Bytes(bytes))),
            false => Ok(()),
        }
    }

    fn cut(&self, volume: &Volume, before: Bytes, bytes: Bytes) -> Failure {
        let (name, kept) = (&volume.name, self.bytes_path());
        // The one remedy that every kind of store has: what keeps data may be outside of this server.
        let mut why = format!(
            "it was served with {before}, and would be cut to {bytes}: give it its former size again, or, if it was made smaller on \
             purpose and the data behind {bytes} is not needed, remove {}, which keeps the former size",
            kept.display()
        );
        if size(&volume.spec).is_some() && file_of(&volume.spec).is_some() {
            let resize = format!("linerate server resize {name} {bytes} --shrink");
            why += &format!("; while it is served, `{resize}` looks for data first");
        }
        Failure::refused(why)
    }

    /// What it was served as, if that can still be read.
    fn served_as(&self) -> Option<Spec> {
        backends::parse(self.spec.as_deref()?).ok()
    }
}

/// The stores below all layers.
fn stores(spec: &Spec) -> Vec<&Spec> {
    match spec.backend.members() {
        [] => vec![spec],
        members => members.iter().flat_map(stores).collect(),
    }
}

/// Whether both are one store, perhaps of another size. Options do not count. A file is the same by any path that leads to it, and
/// a URL only as it is written.
fn is_same(one: &Spec, other: &Spec) -> bool {
    let (one, other) = (one.backend(), other.backend());
    let is_one_place = match (one.path(), other.path()) {
        (Some(one), Some(other)) => is_one_file(one, other),
        _ => one.argument() == other.argument(),
    };
    one.keeps_data() && one.kind().name == other.kind().name && is_one_place
}

#[cfg(test)]
mod tests {
    use super::*;

    fn volume(spec: &str) -> Volume {
        Volume::new("v".parse().expect("a name"), backends::parse(spec).expect("a specification"))
    }

    fn served(spec: &str, mib: u64) -> Kept {
        Kept { spec: Some(spec.to_owned()), bytes: Some(mib << 20), ..Kept::default() }
    }

    /// Any two LUNs were one store, since neither has a path, and of a set the first member alone counted.
    #[test]
    fn a_volume_has_become_smaller_if_it_has_a_store_of_before() {
        for (before, now, is_refused) in [
            ("iscsi://san1/iqn.2026-01.com.example:a/0", "iscsi://san1/iqn.2026-01.com.example:a/0", true),
            ("iscsi://san1/iqn.2026-01.com.example:a/0", "iscsi://san1/iqn.2026-01.com.example:a/1", false),
            ("nbd://san1/a", "delay:1ms:[nbd://san1/a]", true),
            ("nbd://san1/a", "nbd://san1/b", false),
            ("raid1:[file:/a,file:/b]", "raid1:[file:/c,file:/b]", true),
            ("raid1:[file:/a,file:/b]", "raid1:[file:/c,file:/d]", false),
            ("raid1:[ram:2MiB,file:/b]", "raid1:[ram:2MiB,file:/d]", false),
            ("file:/a?direct", "file:/a?size=1MiB", true),
            ("file:/a/b", "file:/a//./b", true),
            ("file:/proc/self/mounts", "file:/proc/mounts", true),
        ] {
            let refused = served(before, 2).check_length(&volume(now), 1 << 20);
            assert_eq!(refused.is_err(), is_refused, "{before} {now}");
            assert!(served(before, 2).check_length(&volume(now), 2 << 20).is_ok(), "{before} {now}");
        }
    }

    #[test]
    fn a_smaller_size_of_any_member_is_refused_before_it_is_opened() {
        let before = "raid1:[file:/a?size=2MiB,file:/b?size=2MiB]";
        for (now, is_refused) in [
            ("raid1:[file:/a?size=2MiB,file:/b?size=1MiB]", true),
            ("raid1:[file:/a?size=1MiB,file:/b?size=2MiB]", true),
            ("raid1:[file:/a?size=2MiB,file:/c?size=1MiB]", false),
            ("raid1:[file:/a?size=3MiB,file:/b?size=2MiB]", false),
        ] {
            assert_eq!(served(before, 1).check_sizes(&volume(now)).is_err(), is_refused, "{now}");
        }
        let shrunk = served("file:/a?size=2MiB", 1);
        assert!(shrunk.check_sizes(&volume("file:/a?size=1MiB")).is_ok(), "by an order");
    }
}
