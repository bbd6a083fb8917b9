// Package filtertest runs compiled filters, so that tests can compare them with the policy they came from.
package filtertest

import (
	"encoding/binary"
	"fmt"

	"github.com/rung-dev/rung/internal/sys/seccomp/filter"
)

// Run interprets a raw filter as the kernel does, strictly: an unknown instruction, a jump out of the program or a load
// from outside the data is an error. It knows what libseccomp emits, too.
func Run(prog []byte, d filter.Data) (filter.Action, error) {
	var data [64]byte
	binary.LittleEndian.PutUint32(data[0:], d.Nr)
	binary.LittleEndian.PutUint32(data[4:], d.Arch)
	for i, v := range d.Args {
		binary.LittleEndian.PutUint64(data[16+8*i:], v)
	}
	var a uint32
	for pc := 0; pc >= 0 && pc*8+8 <= len(prog); pc++ {
		in := prog[pc*8:]
		k := binary.LittleEndian.Uint32(in[4:])
		jump := func(yes bool) {
			if yes {
				pc += int(in[2])
			} else {
				pc += int(in[3])
			}
		}
		switch code := binary.LittleEndian.Uint16(in); code {
		case 0x20:
			if k%4 != 0 || k > 60 {
				return 0, fmt.Errorf("at %d: load from %d", pc, k)
			}
			a = binary.LittleEndian.Uint32(data[k:])
		case 0x54:
			a &= k
		case 0x05:
			pc += int(k)
		case 0x15:
			jump(a == k)
		case 0x25:
			jump(a > k)
		case 0x35:
			jump(a >= k)
		case 0x06:
			return filter.Action(k), nil
		default:
			return 0, fmt.Errorf("at %d: unknown instruction %#x", pc, code)
		}
	}
	return 0, fmt.Errorf("ran off the program")
}
