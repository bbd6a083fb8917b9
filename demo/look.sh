echo "  shell as $(id -un), home $HOME, $(ls /home | wc -l) home directory, interfaces: $(ls /sys/class/net 2>/dev/null | tr '\n' ' ' || true)"
touch /work/mine && echo "  its own disk: $(df --output=size -h /work | tail -1 | tr -d ' ')"
