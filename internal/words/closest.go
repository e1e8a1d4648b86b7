package words

import "strings"

// Closest returns the name that was probably meant by a misspelt one: the closest that differs by one letter, or by two in
// words of six and more, letter case aside. It returns "" when no name is that close.
func Closest(given string, names []string) string {
	given = strings.ToLower(given)
	best, distance := "", 2+min(len(given)/6, 1)
	for _, name := range names {
		d := editDistance(given, strings.ToLower(name))
		if d < distance || d == distance && best != "" && name < best {
			best, distance = name, d
		}
	}
	return best
}

func editDistance(a, b string) int {
	if len(a) > 64 {
		return len(a)
	}
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			cost := 1
			if a[i] == b[j] {
				cost = 0
			}
			next := min(row[j]+1, row[j+1]+1, diagonal+cost)
			diagonal, row[j+1] = row[j+1], next
		}
	}
	return row[len(b)]
}
