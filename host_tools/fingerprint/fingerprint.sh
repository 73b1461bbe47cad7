#!/bin/sh
# Prints what software sees of a ConnectX-3 or ConnectX-5 as text (docs/fingerprint.md). As root:
#   sh fingerprint.sh [--reload] [PCI-ADDRESS] > card.txt
# Reads sysfs; asks ethtool, devlink, ibv_devinfo and pyverbs if they are there. --reload unbinds the
# driver and binds it again for the capabilities: for seconds the card has no link and no addresses.
export LC_ALL=C
reload=$([ "$1" != --reload ] || echo yes) pci=${2:-${1#--reload}}
fail() { echo "fingerprint.sh: $*" >&2; exit 1; }
first=$(grep -l 'PCI_ID=15B3:10\(03\|07\|17\|19\)' /sys/bus/pci/devices/*/uevent | head -n 1)
pci=${pci:-$(basename "${first%/uevent}")} card=/sys/bus/pci/devices/$pci
[ -n "$pci" ] && [ -e "$card/config" ] || fail "there is no such card${pci:+ at $pci}"
here=$(cd "$(dirname "$0")" && pwd) driver=$(basename "$(readlink "$card/driver")")
net=$(ls "$card/net" 2> /dev/null | head -n 1) rdma=$(ls "$card/infiniband" 2> /dev/null | head -n 1)
# What tells one card or machine from another of its kind is masked, what moves all the time left out.
byte='[0-9a-f][0-9a-f]'
mask="/^\($byte:\)\{12\}/d; /degrees C\| V$\| mW\| mA/d; /GID\[/d; /^ *[0-9][0-9]*:\( *[0-9]\)*$/d
    s/$pci/PCI/g; s/$byte\(:$byte\)\{5\}/MAC/g; s/$byte$byte\(:$byte$byte\)\{3\}/GUID/g
    s/\(serial[_. ]*number\|Vendor SN\|Clock\)\([ :]*\).*/\1\2*/${net:+; s/\<$net\>/NET/g}${rdma:+; s/\<$rdma\>/RDMA/g}"
show() { for each; do [ -r "$each" ] && echo "$each = $(cat "$each")"; done; }
names() { [ -d "$1" ] && ls "$1" | sed "s|.*|${1##*/} & = yes|"; }

# lines SECTION SEPARATOR COMMAND...: its output as `key = value`. A line that ends with a colon
# heads those that follow, one without the separator belongs to the key before it.
lines() {
    echo "[$1]" && between=$2 && shift 2
    command -v "$1" > /dev/null || { echo "not taken = no $1" && return; }
    "$@" 2>&1 | sed "$mask" | awk -v between="$between" '
        { match($0, /^[ \t]*/); indent = RLENGTH; gsub(/[ \t]+/, " "); gsub(/^ | $/, "") }
        /^(values:)?$/ { next }
        level && indent <= level { head = level = "" }
        /:$/ { head = substr($0, 1, length($0) - 1) ", "; last = ""; level = indent; next }
        /^name / { head = $2 ", " }
        { at = index($0, between); key = at ? substr($0, 1, at - 1) : last $0; sub(/ $/, "", key)
          if (at) last = key ", "
          value = at ? substr($0, at + length(between)) : "yes"; sub(/^ /, "", value)
          key = head key; print key (seen[key]++ ? " #" seen[key] : "") " = " value }'
}

printf 'bluebridge fingerprint 1\n[about]\nkernel = %s\ndriver = %s\n[pci]\n' "$(uname -r)" "${driver:-none}"
cd "$card" && show class revision max_link_speed max_link_width reset_method sriov_totalvfs
ls -ln resource[0-5] rom vpd 2> /dev/null | awk '{ print $NF " = " $5 " bytes" }'
echo "[config]" && od -An -v -tx1 config | awk '
    function hex(text, n, i) { n = 0; for (i = 1; i <= length(text); i++)
        n = n * 16 + index("0123456789abcdef", substr(text, i, 1)) - 1; return n }
    function hide(at, end) { for (; at < end; at++) byte[at] = "**" }
    { for (i = 1; i <= NF; i++) byte[n++] = $i }
    END { print "bytes = " n; hide(16, 40); hide(48, 52); hide(60, 61)  # BARs, interrupt line
        for (at = n > 256 ? 256 : 0; at && turn++ < 99; at = int(hex(byte[at + 3] byte[at + 2]) / 16))
            if (byte[at + 1] byte[at] == "0003") hide(at + 4, at + 12)  # the serial number
        for (at = 0; at < n; at += 16) { line = ""
            for (i = 0; i < 16; i++) line = line " " byte[at + i]
            if (line ~ /[1-9a-f*]/) printf "%03x =%s\n", at, line } }'
if [ -n "$rdma" ]; then
    echo "[rdma]" && cd "$card/infiniband/$rdma" && show fw_ver hca_type board_id hw_rev
    for port in ports/*; do
        show "$port"/link_layer "$port"/rate "$port"/cap_mask; names "$port/counters"; names "$port/hw_counters"
        for gid in $(ls "$port/gids" | sort -n); do  # only those that are used have a type
            kind=$(sed 's/^fe80:.*/link-local/; s/^\(0000:\)\{5\}ffff:.*/IPv4/; s/.*:.*/other/' "$port/gids/$gid")
            type=$(cat "$port/gid_attrs/types/$gid" 2> /dev/null) && echo "$port/gid $gid = $type, $kind"
        done
    done
    lines ibv_devinfo ':' ibv_devinfo -v -d "$rdma"
    lines errors ': ' python3 "$here/fingerprint_errors.py" "$rdma"
fi
for option in '' -k -g -l -c -a -T -m -x --show-priv-flags -S; do  # one line for counters of all queues
    [ -z "$net" ] || lines "ethtool${option:+ $option}" ':' ethtool $option "$net" |
        { [ "$option" != -S ] && cat || sed 's/ = .*/ = yes/; s/\(, [rt]x\|, ch\)[0-9][0-9]*_/\1N_/' | awk '!seen[$0]++'; }
done
for words in 'dev info' 'dev param show' 'port show'; do
    lines "devlink $words" ' ' devlink $words "pci/$pci"
done
[ -n "$reload" ] || { printf '[capabilities]\nnot taken = no --reload\n' && exit; }
put() { [ ! -w "$2" ] || echo "$1" > "$2"; }
verbose() {  # the driver writes commands (mlx5), or what the card told it (mlx4), into the kernel's log
    put "format \"dump command data\" $1p" /sys/kernel/debug/dynamic_debug/control
    put "func dump_buf $1p" /sys/kernel/debug/dynamic_debug/control
    put "$2" "/sys/module/$driver/parameters/$([ "$driver" = mlx4_core ] && echo debug_level || echo debug_mask)"
}
after() { verbose - 0; put 1 /sys/bus/auxiliary/drivers_autoprobe; [ -e "$card/driver" ] || put "$pci" "/sys/bus/pci/drivers/$driver/bind"; }
[ -e /sys/kernel/debug/dynamic_debug ] || mount -t debugfs none /sys/kernel/debug
trap 'after; kill $reader 2> /dev/null' EXIT && trap exit HUP INT TERM  # the card gets its driver back
cd "$card" && echo "$pci" > driver/unbind || fail "no driver lets the card go"
put 0 /sys/bus/auxiliary/drivers_autoprobe && verbose + 1  # the drivers above would ask much more
log=$(mktemp) && echo "fingerprint $$ begins" > /dev/kmsg && { cat /dev/kmsg > "$log" & } && reader=$!
echo "$pci" > "/sys/bus/pci/drivers/$driver/bind"
after && echo "fingerprint $$ ends" > /dev/kmsg
for each in "$card/$driver".*; do put "${each##*/}" /sys/bus/auxiliary/drivers_probe; done
tries=60 && until grep -q "fingerprint $$ ends" "$log" || [ $((tries -= 1)) = 0 ]; do sleep 1; done
kill "$reader" && sed -i "1,/fingerprint $$ begins/d" "$log"
case $driver in
    mlx4_core) lines capabilities ':' sed -n '/Base MM/,/profile/{/profile/!s/.*core [^ ]*: //p}' "$log" ;;
    *) echo "[capabilities]" && awk '
        / dump command data / { input = $NF == "INPUT"; wanted = /QUERY_HCA_CAP|ACCESS_REG|QUERY_ISSI/
            if (input) { split($(NF - 1), part, "("); name = "" }; next }
        !wanted || !/[0-9a-f]+: ([0-9a-f]+ ){3}[0-9a-f]+$/ { next }
        input { if (name == "") name = part[1] " " substr($(NF - 2), 5) (part[1] ~ /REG/ ? " " $(NF - 1) " " $NF : ""); next }
        !/ 0+ 0+ 0+ 0+$/ { key = name " " substr($(NF - 4), 1, 3)
            if (!seen[key]++) print key " = " $(NF - 3) " " $(NF - 2) " " $(NF - 1) " " $NF }' "$log" ;;
esac && rm "$log"
