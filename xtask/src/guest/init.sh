#!/bin/busybox sh
# The first process of the guest: sets up mounts, paths and the network, and runs a shell on the second serial line for scenes.
/bin/busybox mkdir -p /dev /proc /sys /tmp /run/lock /mnt /var/lib/iscsi /var/target /etc/iscsi /root
/bin/busybox mount -t devtmpfs devtmpfs /dev
/bin/busybox mount -t proc proc /proc
/bin/busybox mount -t sysfs sysfs /sys
/bin/busybox mount -t tmpfs tmpfs /tmp
/bin/busybox mount -t tmpfs tmpfs /run
/bin/busybox mkdir -p /run/lock /busybox
/bin/busybox --install -s /busybox
# Debian's programs take precedence over those of busybox.
export PATH=/usr/sbin:/sbin:/usr/bin:/bin:/busybox HOME=/root
mount -t configfs configfs /sys/kernel/config 2>/dev/null
ln -s /proc/mounts /etc/mtab
echo /busybox/modprobe >/proc/sys/kernel/modprobe
modprobe virtio_net
ip link set lo up
for end in 0 1; do
    ip address add 10.77.$end.2/24 dev eth$end
    ip link set eth$end up
done
stty -F /dev/ttyS1 raw -echo
exec </dev/ttyS1 >/dev/ttyS1 2>&1
echo '@@ up 0'
# Run as a script, because a shell with a terminal as input would edit and echo lines.
while :; do sh /dev/ttyS1; done
