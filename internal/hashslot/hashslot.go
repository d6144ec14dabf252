// Package hashslot computes the hash slot of a key, as Redis Cluster does.
package hashslot

import "bytes"

// Count is the number of hash slots of a cluster.
const Count = 16384

// Of returns the hash slot of a key. Only the part between the first '{' and the next '}' counts, if there is one and
// it is not empty.
func Of(key []byte) int {
	if open := bytes.IndexByte(key, '{'); open >= 0 {
		if length := bytes.IndexByte(key[open+1:], '}'); length > 0 {
			key = key[open+1 : open+1+length]
		}
	}
	var crc uint16
	for _, c := range key {
		crc = crc<<8 ^ table[byte(crc>>8)^c]
	}
	return int(crc % Count)
}

// table has the CRC-16 of each byte (XMODEM: polynomial 0x1021, begin 0).
var table = func() (t [256]uint16) {
	for i := range t {
		crc := uint16(i) << 8
		for range 8 {
			if crc&0x8000 != 0 {
				crc = crc<<1 ^ 0x1021
			} else {
				crc <<= 1
			}
		}
		t[i] = crc
	}
	return t
}()
