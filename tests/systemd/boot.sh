#!/usr/bin/env bash
# Boots the systemd that is installed here as PID 1 of a small machine of its own, for tests of units.
#
#   tests/systemd/boot.sh TREE
#
# The small machine shows this one's file system with TREE copied over it, and all that is written there is in
# memory and gone afterwards. Its processes, mounts, network, cgroups, hostname and IPC are its own; none of
# this machine's services are started, and /tmp, /dev, /run and the logs begin empty. What boots must never see
# the /tmp or the devices of this machine: systemd empties the one and manages the other.
#
# Prints the number of the process that is its PID 1; `nsenter` goes in there. Ends, and ends everything in it,
# when stdin is closed. Exits 77 and tells why where no systemd can be booted. Needs root, cgroup v2 (wherever it
# is mounted) and overlayfs.
set -euo pipefail

cannot() {
    printf '%s\n' "$*" >&2
    exit 77
}

# ---- Inside: from a mount namespace of our own to systemd ----

# A memory of its own over the whole root, and nothing of this machine that is alive.
make_root() {
    local tree=$1 root=/mnt/root
    mount -t tmpfs tmpfs /mnt || cannot "a tmpfs cannot be mounted"
    mkdir /mnt/upper /mnt/work "$root"
    mount -t overlay overlay -o lowerdir=/,upperdir=/mnt/upper,workdir=/mnt/work "$root" ||
        cannot "an overlay of the root file system cannot be mounted"
    local at
    for at in tmp run dev var/log; do
        mkdir -p "$root/$at"
        mount -t tmpfs -o mode=755 tmpfs "$root/$at"
    done
    chmod 1777 "$root/tmp"
    make_devices "$root/dev"
    mount -t proc proc "$root/proc"
    # Of the kernel's settings only those of the network are the small machine's own.
    mount --bind "$root/proc/sys" "$root/proc/sys"
    mount -o remount,bind,ro "$root/proc/sys"
    mount --bind /proc/sys/net "$root/proc/sys/net" 2>/dev/null || true
    mount -t sysfs -o ro sysfs "$root/sys"
    mountpoint -q "$root/sys/fs/cgroup" || mount -t tmpfs tmpfs "$root/sys/fs/cgroup"
    mount -t cgroup2 cgroup2 "$root/sys/fs/cgroup" || cannot "cgroup v2 cannot be mounted"
    leave_services_out "$root"
    umask 022
    cp -RL "$tree/." "$root/"
    [[ $(stat -f -c %T "$root/tmp") == tmpfs && -z $(ls -A "$root/tmp") ]] || cannot "its /tmp is not its own"
}

make_devices() {
    local name number
    while read -r name number; do
        mknod -m 666 "$1/$name" c ${number/:/ } || cannot "devices cannot be made"
    done <<<$'null 1:3\nzero 1:5\nfull 1:7\nrandom 1:8\nurandom 1:9\ntty 5:0'
    mkdir "$1/shm" "$1/pts"
    mount -t tmpfs -o mode=1777 tmpfs "$1/shm"
    mount -t devpts -o newinstance,ptmxmode=0666 devpts "$1/pts"
    ln -s pts/ptmx "$1/ptmx"
    ln -s /proc/self/fd "$1/fd"
}

# Of what every boot brings up, the journal alone.
leave_services_out() {
    local etc=$1/etc/systemd/system wanted
    rm -rf "$etc" "$1/etc/systemd/user"
    rm -f "$1/etc/fstab" "$1/etc/crypttab"
    mkdir -p "$etc"
    for wanted in "$1"/{usr/,}lib/systemd/system/{sysinit,local-fs,sockets,timers,basic}.target.wants/*; do
        case ${wanted##*/} in
            systemd-journal[d-]* | \* | *.target) ;;
            *) ln -sfn /dev/null "$etc/${wanted##*/}" ;;
        esac
    done
    ln -sfn /dev/null "$etc/systemd-remount-fs.service"
    printf '[Unit]\nRequires=basic.target\nAfter=basic.target\n' >"$etc/small.target"
    tr -d - </proc/sys/kernel/random/uuid >"$1/etc/machine-id"
}

inside() {
    make_root "$1"
    cd /mnt/root
    exec env -i container=other PATH=/usr/sbin:/usr/bin:/sbin:/bin \
        chroot . "$2" --system --unit=small.target --log-target=journal --show-status=no
}

if [[ ${1-} == --inside ]]; then
    inside "$2" "$3"
fi

# ---- Outside: what is needed, and what is cleared away ----

tree=$(realpath "$1")
((EUID == 0)) || cannot "only root can boot a systemd"
for program in unshare nsenter mount chroot; do
    command -v "$program" >/dev/null || cannot "$program is missing"
done
unshare --mount --pid --fork --cgroup --net --uts --ipc true 2>/dev/null || cannot "namespaces cannot be made"
for systemd in /usr/lib/systemd/systemd /lib/systemd/systemd ''; do
    [[ -x $systemd ]] && break
done
[[ $systemd ]] || cannot "systemd is not installed"

# Mount point and root of the mount, of the first cgroup v2 in here.
read -r root point < <(awk '/ - cgroup2 / { print $4, $5; exit }' /proc/self/mountinfo) ||
    cannot "no cgroup v2 is mounted"
own=$(sed -n 's/^0:://p' /proc/self/cgroup)
own=$point${own#"${root%/}"}
own=${own%/}
group=$own/guild-hall-small-machine-$$
mkdir "$group" 2>/dev/null || cannot "no cgroup can be made in $own"

first=
clear_away() {
    trap - EXIT
    [[ -z $first ]] || kill -KILL "$first" 2>/dev/null || true
    for _ in {1..200}; do
        find "$group" -depth -type d -exec rmdir {} + 2>/dev/null || true
        [[ -d $group ]] || break
        sleep 0.02
    done
}
trap clear_away EXIT
trap 'exit 143' TERM INT

(
    echo "$BASHPID" >"$group/cgroup.procs"
    exec unshare --mount --pid --fork --kill-child=KILL --cgroup --net --uts --ipc --propagation private \
        bash "$0" --inside "$tree" "$systemd"
) <&- >&2 &
outer=$!

while read -r first _ <"/proc/$outer/task/$outer/children" 2>/dev/null || kill -0 "$outer" 2>/dev/null; do
    [[ $first && $(<"/proc/$first/comm") == systemd ]] && break
    sleep 0.02
done 2>/dev/null
if ! kill -0 "$outer" 2>/dev/null; then
    wait "$outer" || exit $?
fi
# Nothing but systemd's own may be in the small machine's root cgroup.
echo "$outer" >"$own/cgroup.procs" 2>/dev/null || true
echo "$first"
read -r _ || true
