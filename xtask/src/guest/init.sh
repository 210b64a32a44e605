#!/bin/busybox sh
# The first process of the guest: mounts, names, network, and a shell on the second serial line for the scenes.
/bin/busybox mkdir -p /dev /proc /sys /tmp /run/lock /mnt /var/lib/iscsi /var/target /etc/iscsi /root
/bin/busybox mount -t devtmpfs devtmpfs /dev
/bin/busybox mount -t proc proc /proc
/bin/busybox mount -t sysfs sysfs /sys
/bin/busybox mount -t tmpfs tmpfs /tmp
/bin/busybox mount -t tmpfs tmpfs /run
/bin/busybox mkdir -p /run/lock /busybox
/bin/busybox --install -s /busybox
# Debian's programs come before busybox's of the same name.
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
# As a script: a shell whose input is a terminal edits lines and prints them.
while :; do sh /dev/ttyS1; done
