package process

import (
	"bytes"
	"os"
	"slices"
	"strconv"
	"strings"
)

// Memory returns the memory of the processes of groups, in bytes (their resident sets; shared pages count for each process); 0 means unknown.
func Memory(groups []int) (total int64) {
	if len(groups) == 0 {
		return 0
	}
	page := int64(os.Getpagesize())
	for _, raw := range stats() {
		if group, err := strconv.Atoi(raw[2]); err != nil || !slices.Contains(groups, group) || len(raw) < 22 {
			continue
		}
		if pages, err := strconv.ParseInt(raw[21], 10, 64); err == nil {
			total += pages * page
		}
	}
	return total
}

// stats returns, by process number, the fields of /proc/PID/stat after the name: state, parent, group, ….
func stats() map[int][]string {
	dir, err := os.Open("/proc")
	if err != nil {
		return nil
	}
	defer func() { _ = dir.Close() }()
	names, _ := dir.Readdirnames(-1) //nolint:errcheck // what could be read is listed
	all := map[int][]string{}
	for _, name := range names {
		pid, err := strconv.Atoi(name)
		if err != nil {
			continue
		}
		if fields := stat(name); len(fields) >= 3 {
			all[pid] = fields
		}
	}
	return all
}

// stat returns the fields of one process; nil if it has ended.
func stat(pid string) []string {
	raw, err := os.ReadFile("/proc/" + pid + "/stat") //nolint:gosec // a number
	if err != nil {
		return nil
	}
	// pid (name) state parent group …; the name may contain anything.
	return strings.Fields(string(raw[bytes.LastIndexByte(raw, ')')+1:]))
}
