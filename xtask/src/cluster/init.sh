# Makes the inside of a machine, as process 1 of its namespaces: everything at the usual paths, nothing shared with the
# host but the files that are only read. NODE, DATA, CONTROLLERS and PAUSE come from the environment.
set -eu
mount --make-rprivate /
mount -t proc proc /proc
# A sysfs shows the devices of the network namespace it is mounted from.
mount -t sysfs sysfs /sys
# An instance of its own: what is pinned there goes with the machine.
mount -t bpf bpf /sys/fs/bpf
mount -t tmpfs -o mode=755 cgroup /sys/fs/cgroup
for controllers in $CONTROLLERS; do
    mkdir "/sys/fs/cgroup/$controllers"
    mount -t cgroup -o "$controllers" cgroup "/sys/fs/cgroup/$controllers"
done
mkdir /sys/fs/cgroup/systemd /sys/fs/cgroup/unified
mount -t cgroup -o none,name=systemd cgroup /sys/fs/cgroup/systemd
mount -t cgroup2 cgroup2 /sys/fs/cgroup/unified
for folder in /run /var/lib /var/log; do
    mount -t tmpfs -o mode=755 tmpfs "$folder"
done
# Layers of images need a real file system below them.
for folder in containerd kubelet; do
    mkdir "/var/lib/$folder"
    mount --bind "$DATA/$folder" "/var/lib/$folder"
done
# For volumes that pods and the host of the pods mount into each other.
mount --make-rshared /
hostname "$NODE"
touch "$DATA/booted"
exec "$PAUSE"
