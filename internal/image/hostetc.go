package image

import (
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// This file is the list of everything a sandbox on the host template sees of the host's /etc. What is not named here is
// not there. Nothing is copied that is not world-readable on the host.

// publicFiles are copied if they exist, links followed: they come with packages and name nothing of this host.
func publicFiles() []string {
	return []string{
		"/etc/ld.so.cache", "/etc/ld.so.conf",
		"/etc/debian_version", "/etc/mime.types", "/etc/magic", "/etc/services", "/etc/protocols", "/etc/rpc",
		"/etc/ssl/certs/java/cacerts",
	}
}

// publicTrees are copied with their regular files and links: the configuration that language runtimes link to from /usr.
func publicTrees() []string {
	return []string{"/etc/ld.so.conf.d", "/etc/python3*", "/etc/perl", "/etc/java-*", "/etc/fonts"}
}

func (w *hostWriter) etc() {
	for _, d := range []string{"/etc/ssl/certs/java", "/etc/alternatives", "/etc/pki/tls/certs"} {
		w.dir(d, 0o755)
	}
	w.accounts()
	w.file("/etc/nsswitch.conf", "passwd: files\ngroup: files\nshadow: files\nhosts: files dns\nnetworks: files\nprotocols: files\nservices: files\n")
	w.file("/etc/hosts", "127.0.0.1 localhost\n::1 localhost ip6-localhost ip6-loopback\n")
	w.file("/etc/hostname", "rung\n")
	w.file("/etc/resolv.conf", "# no network\n")
	w.file("/etc/timezone", "Etc/UTC\n")
	w.file("/etc/ssl/openssl.cnf", "[req]\ndistinguished_name = dn\n[dn]\n")
	w.link("/usr/share/zoneinfo/Etc/UTC", "/etc/localtime")
	w.link("/proc/mounts", "/etc/mtab")
	w.link("../usr/lib/os-release", "/etc/os-release")
	for _, f := range publicFiles() {
		w.copyFile(f)
	}
	for _, pattern := range publicTrees() {
		w.copyTrees(pattern)
	}
	w.alternatives()
	w.certificates()
}

func (w *hostWriter) accounts() {
	shell := "/bin/sh"
	if info, err := os.Stat(w.from("/bin/bash")); err == nil && info.Mode().IsRegular() {
		shell = "/bin/bash"
	}
	w.file("/etc/passwd", "root:x:0:0:root:/root:"+shell+"\n"+
		fmt.Sprintf("rung:x:%d:%d:rung-guest:/:/usr/sbin/nologin\n", GuestUID, GuestUID)+
		fmt.Sprintf("user:x:%d:%d:user:/home/user:%s\n", UserUID, UserUID, shell)+
		"nobody:x:65534:65534:nobody:/nonexistent:/usr/sbin/nologin\n")
	w.file("/etc/group", "root:x:0:\ntty:x:5:\n"+
		fmt.Sprintf("rung:x:%d:\nuser:x:%d:\n", GuestUID, UserUID)+
		"nogroup:x:65534:\n")
	w.file("/etc/shells", "/bin/sh\n/bin/bash\n")
}

// certificates copies the bundle and puts links to it where other distributions have theirs. The links by hash beside it are
// left out: three hundred files for the few programs that read no bundle.
func (w *hostWriter) certificates() {
	path, ok := caBundle(w.src)
	if !ok {
		w.note("this host has no bundle of certificate authorities: TLS clients inside trust nobody; install ca-certificates")
		return
	}
	data, err := readCapped(path, maxCopyFile)
	if err != nil {
		w.err = err
		return
	}
	w.file(CAInside, string(data))
	w.link("certs/ca-certificates.crt", "/etc/ssl/cert.pem")
	w.link("certs/ca-certificates.crt", "/etc/ssl/ca-bundle.pem")
	w.link(CAInside, "/etc/pki/tls/certs/ca-bundle.crt")
}

// alternatives copies the links that links in /usr/bin go through, except those of manual pages.
func (w *hostWriter) alternatives() {
	const dir = "/etc/alternatives"
	entries, err := os.ReadDir(w.from(dir))
	if err != nil {
		return // this host has none
	}
	for _, e := range entries {
		if e.Type()&fs.ModeSymlink == 0 || strings.HasSuffix(e.Name(), ".gz") {
			continue
		}
		if target, err := os.Readlink(filepath.Join(w.from(dir), e.Name())); err == nil {
			w.link(target, filepath.Join(dir, e.Name()))
		}
	}
}

// copyFile copies one regular file if every user of the host may read it.
func (w *hostWriter) copyFile(path string) {
	if w.err != nil {
		return
	}
	data, ok := w.readPublic(path, true)
	if ok {
		w.file(path, string(data))
	}
}

// readPublic reads a file that is regular, world-readable and not too large.
func (w *hostWriter) readPublic(path string, follow bool) ([]byte, bool) {
	f, err := openPublic(w.from(path), follow)
	if err != nil {
		return nil, false
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil || !info.Mode().IsRegular() || info.Mode()&0o004 == 0 || info.Size() > maxCopyFile {
		return nil, false
	}
	data, err := io.ReadAll(io.LimitReader(f, maxCopyFile))
	if err != nil {
		return nil, false
	}
	if w.copied += int64(len(data)); w.copied > maxCopied {
		w.note("%s: left out, more than %d MiB of public configuration", path, maxCopied>>20)
		return nil, false
	}
	return data, true
}

// copyTrees copies directories that match pattern. Links stay links, whatever they lead to is looked up inside.
func (w *hostWriter) copyTrees(pattern string) {
	matches, err := filepath.Glob(w.from(pattern))
	if err != nil {
		w.err = err
		return
	}
	for _, top := range matches {
		err := filepath.WalkDir(top, func(path string, d fs.DirEntry, err error) error {
			if err != nil {
				return fs.SkipDir // unreadable here: unreadable inside
			}
			rel, err := filepath.Rel(w.src, path)
			if err != nil {
				return err
			}
			w.copyEntry("/"+rel, d)
			return w.err
		})
		if err != nil && w.err == nil {
			w.err = err
		}
	}
}

func (w *hostWriter) copyEntry(path string, d fs.DirEntry) {
	switch {
	case d.IsDir():
		w.dir(path, 0o755)
	case d.Type()&fs.ModeSymlink != 0:
		if target, err := os.Readlink(w.from(path)); err == nil {
			w.link(target, path)
		}
	case d.Type().IsRegular():
		if data, ok := w.readPublic(path, false); ok {
			w.file(path, string(data))
		}
	}
}
