package machine

import (
	"encoding/binary"
	"fmt"
	"os"
)

// config is a PCI device's configuration space: PCI Express Base Specification, chapter 7.
type config []byte

const (
	devctlRelaxed = 1 << 4 // Device Control: Enable Relaxed Ordering

	capabilities  = 0x34 // offset of the first capability
	capPCIe       = 0x10
	devctl        = 0x08 // Device Control within the PCIe capability
	extended      = 0x100
	extACS        = 0x0d
	acsCtl        = 0x06 // control within the ACS capability
	headerSize    = 0x40 // all that an unprivileged reader gets
	maxExtendedID = 64   // bound on the chain: a broken device must not loop us
)

func (r Reader) config(sysfs string) (config, error) {
	b, err := os.ReadFile(r.path(sysfs + "/config"))
	if err != nil {
		return nil, fmt.Errorf("read PCI configuration space: %w", err)
	}
	if len(b) <= headerSize {
		return nil, fmt.Errorf("only root may read the PCI configuration space beyond its header")
	}
	return b, nil
}

func (c config) word(at int) (uint16, bool) {
	if at < 0 || at+2 > len(c) {
		return 0, false
	}
	return binary.LittleEndian.Uint16(c[at:]), true
}

// deviceControl is the Device Control register of the PCIe capability.
func (c config) deviceControl() (uint16, bool) {
	if len(c) <= capabilities {
		return 0, false
	}
	at := int(c[capabilities] &^ 3)
	for range maxExtendedID {
		if at < headerSize || at+2 > len(c) {
			return 0, false
		}
		if c[at] == capPCIe {
			return c.word(at + devctl)
		}
		at = int(c[at+1] &^ 3)
	}
	return 0, false
}

// acsControl is the control register of the Access Control Services capability.
func (c config) acsControl() (uint16, bool) {
	at := extended
	for range maxExtendedID {
		if at < extended || at+4 > len(c) {
			return 0, false
		}
		head := binary.LittleEndian.Uint32(c[at:])
		if head&0xffff == extACS {
			return c.word(at + acsCtl)
		}
		at = int(head>>20) &^ 3
	}
	return 0, false
}
