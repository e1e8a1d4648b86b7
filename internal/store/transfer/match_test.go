package transfer

import (
	"errors"
	"slices"
	"strings"
	"testing"
)

// Alike returns an error wrapping [ErrUnlike] when the tables of two sides cannot be copied into
// each other. It names every difference.
func Alike(a, b []Table) error {
	_, err := pairUp(a, b)
	return err
}

func table(name string, references ...string) Table {
	return Table{Name: name, Key: []string{"id"}, References: references, Columns: []Column{{Name: "id", Kind: Integer}, {Name: "text", Kind: Text}}}
}

func TestTablesComeBehindThoseTheyReferTo(t *testing.T) {
	t.Parallel()
	list := []Table{table("a", "c"), table("b", "a"), table("c"), table("d", "d")}
	pairs, err := pairUp(list, list)
	var names []string
	for _, p := range pairs {
		names = append(names, p.from.Name)
	}
	if want := []string{"c", "a", "b", "d"}; err != nil || !slices.Equal(names, want) {
		t.Errorf("%v, %v; want %v", names, err, want)
	}
	circle := []Table{table("a", "b"), table("b", "a")}
	if _, err := pairUp(circle, circle); !errors.Is(err, ErrUnlike) {
		t.Errorf("a circle: %v", err)
	}
}

func TestEachDifferenceOfTheTablesIsNamed(t *testing.T) {
	t.Parallel()
	other := table("both")
	other.Columns = []Column{{Name: "id", Kind: Integer, Nullable: true}, {Name: "new", Kind: Text}}
	text := table("kinds")
	text.Columns = slices.Clone(text.Columns)
	text.Columns[1].Kind = Bytes
	_, err := pairUp([]Table{table("both"), table("old"), table("kinds")}, []Table{other, table("added"), text})
	for _, want := range []string{"no table old", "no table added", "no column both.text", "no column both.new", "both.id may be NULL on one side only", "kinds.text is text in the source and bytes"} {
		if !errors.Is(err, ErrUnlike) || !strings.Contains(err.Error(), want) {
			t.Errorf("%v does not name %q", err, want)
		}
	}
}

// A sum must not depend on the order of the rows, and must detect each change of a value, including
// a character that moves into the next column.
func TestASumIsOfTheContent(t *testing.T) {
	t.Parallel()
	same := func(s string) string { return s }
	sum := func(rows ...Row) (s Sum) {
		for _, row := range rows {
			s.add(row, []summed{{0, false}, {1, false}, {2, false}, {3, false}}, same, nil)
		}
		return s
	}
	a, b := Row{int64(1), "ab", "c", nil}, Row{int64(2), "", "d", 0.5}
	if sum(a, b) != sum(b, a) {
		t.Error("the order counts")
	}
	for _, changed := range []Row{{int64(1), "a", "bc", nil}, {int64(1), "ab", "c", ""}, {"1", "ab", "c", nil}, {int64(3), "ab", "c", nil}, {int64(1), []byte("ab"), "c", nil}} {
		if sum(a, b) == sum(changed, b) {
			t.Errorf("%v has the sum of %v", changed, a)
		}
	}
}
