# A file system on an export, through nbdfuse and a loop device; $1 is a folder, $2 the URL.
export PATH="$PATH:/usr/sbin:/sbin"
mkdir "$1/fuse" "$1/disk"
nbdfuse --pidfile "$1/pid" "$1/fuse/nbd" "$2" &
fuse=$!
loop=
end() {
    umount "$1/disk" 2>/dev/null || :
    [ -z "$loop" ] || losetup -d "$loop"
    umount "$1/fuse" 2>/dev/null || :
    wait "$fuse" || :
}
trap 'end "$1"' EXIT
tries=0
until [ -s "$1/pid" ]; do
    kill -0 "$fuse"
    tries=$((tries + 1))
    [ "$tries" -lt 1200 ]
    sleep 0.1
done
loop=$(losetup -f --show "$1/fuse/nbd")
mkfs.ext4 -q "$loop"
mount "$loop" "$1/disk"
head -c 8388608 /dev/urandom > "$1/before"
cp "$1/before" "$1/disk/file"
sync "$1/disk/file"
umount "$1/disk"
mount "$loop" "$1/disk"
cmp "$1/before" "$1/disk/file"
