# Code nobody reviewed: it looks around and tries what it should not be able to do.
import os, socket, ctypes

def attempt(what, f):
    try:
        print(f"  {what}: {f()}")
    except OSError as e:
        print(f"  {what}: refused ({e.strerror})")

libc = ctypes.CDLL(None, use_errno=True)

def unshare():
    if libc.unshare(0x10000000) != 0:  # CLONE_NEWUSER
        e = ctypes.get_errno()
        raise OSError(e, os.strerror(e))
    return "a user namespace of its own"

print(f"  python as uid {os.getuid()} on {os.uname().release}")
attempt("read the host's password hashes", lambda: open("/etc/shadow").read()[:20] and "read")
attempt("write to the root directory", lambda: open("/planted", "w").write("x") and "written")
attempt("reach the network", lambda: socket.create_connection(("192.0.2.1", 80), timeout=2) and "connected")
attempt("make a user namespace", unshare)
print("  compute:", sum(i * i for i in range(1000)))
