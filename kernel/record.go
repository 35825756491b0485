package kernel

import "encoding/binary"

// A record on the ring, as struct record in bpf/record.h lays it out. Decoding
// reads fields at these offsets; TestLayout compares them with the object's BTF.
const (
	offTime    = 0
	offStart   = 8
	offCgroup  = 16
	offID      = 24
	offTgid    = 32
	offTid     = 36
	offPpid    = 40
	offRet     = 44
	offKind    = 48
	offHook    = 50
	offBits    = 52
	offArg     = 56
	offIno     = 104
	offDev     = 112
	offMode    = 116
	offSeg     = 120
	offSlot    = 136
	offNr      = 140
	offCPU     = 142
	offSerial  = 144
	offStream  = 148
	recordSize = 152
)

// Kinds and bits of records that never leave the decoder, and its segments.
const (
	bitTruncated       = 1 << 0
	bitFailedRead      = 1 << 1
	bitWalked          = 1 << 2
	bitDeleted         = 1 << 3
	bitUnreachable     = 1 << 4
	bitArgsCut         = 1 << 5
	bitEnvCut          = 1 << 6
	bitNoResult        = 1 << 8
	bitIngress         = 1 << 9
	bitFromUser        = 1 << 10
	bitSlot            = 1 << 11
	bitBaseUnreachable = 1 << 12
	bitIA32            = 1 << 13
	bitNoBase          = 1 << 14
	bitAddressFirst    = 1 << 15
	bitBaseCut         = 1 << 16
	bitUnresolved      = 1 << 17
	bitPending         = 1 << 18
	bitURing           = 1 << 19
	bitQuiet           = 1 << 20
	bitClaimed         = 1 << 21
	bitCreated         = 1 << 22

	segPath  = 0
	segBase  = 1
	segPath2 = 2
	segBase2 = 3
	segName  = 4
	segEnv   = 5
	segTool  = 6
	segTrace = 7
	segCount = 8

	// Other records use a segment for other things.
	segAddr   = segEnv   // network: struct address
	segGiven  = segTool  // names: the first as the caller wrote it
	segGiven2 = segTrace // the second
)

// Both instruction sets are little-endian.
var le = binary.LittleEndian

// record is one raw record with bounds-checked segments.
type record struct {
	b   []byte
	seg [segCount][]byte
}

// parse checks the fixed part and cuts the segments. It keeps b.
func (r *record) parse(b []byte) bool {
	if len(b) < recordSize {
		return false
	}
	r.b = b
	rest := b[recordSize:]
	if r.u32(offBits)&bitAddressFirst != 0 {
		if len(rest) < addressSize || r.u16(offSeg+2*segAddr) != addressSize {
			return false
		}
		r.seg = [segCount][]byte{segAddr: rest[:addressSize]}
		rest = rest[addressSize:]
		n := int(r.u16(offSeg + 2*segName))
		if n > len(rest) {
			return false
		}
		r.seg[segName] = rest[:n:n]
		return true
	}
	for i := range r.seg {
		n := int(le.Uint16(b[offSeg+2*i:]))
		if n > len(rest) {
			return false
		}
		r.seg[i], rest = rest[:n:n], rest[n:]
	}
	return true
}

func (r *record) u16(off int) uint16 { return le.Uint16(r.b[off:]) }
func (r *record) u32(off int) uint32 { return le.Uint32(r.b[off:]) }
func (r *record) u64(off int) uint64 { return le.Uint64(r.b[off:]) }
func (r *record) arg(i uint8) uint64 { return le.Uint64(r.b[offArg+8*int(i):]) }
