package measure

import (
	"encoding/binary"
	"testing"
)

// A witness that says nothing leaves every field unmeasured, and none of them at a value that would keep a promise.
func TestWitnessedNothing(t *testing.T) {
	for _, stream := range [][]byte{nil, {1}, make([]byte, RecordHead-1)} {
		m := Witnessed(stream)
		iso := m.Isolation(HostFacts{BootID: "x", Namespaces: map[string]string{"pid": "pid:[1]"}})
		if len(iso.Capabilities) == 0 || iso.NoNewPrivs || iso.SeccompMode != 0 || iso.RootReadOnly || iso.GVisor || !iso.SharedKernel ||
			iso.Namespaces["pid"] || len(iso.Interfaces) == 0 || iso.Descriptors != nil {
			t.Errorf("a silent witness %v gives %+v", stream, iso)
		}
	}
}

// FuzzWitnessed: the stream comes from a process of ours, but one that user code could have killed half way.
func FuzzWitnessed(f *testing.F) {
	head := make([]byte, RecordHead)
	binary.NativeEndian.PutUint32(head[4:], 3)
	f.Add(append(head, "abc"...))
	f.Add([]byte{255, 255, 0, 0, 255, 255, 255, 255})
	f.Fuzz(func(t *testing.T, stream []byte) {
		m := Witnessed(stream)
		if m.GVisor && len(m.GVisorSigns) == 0 {
			t.Error("gVisor without a sign")
		}
	})
}
