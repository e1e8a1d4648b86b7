//go:build compat

package schedule

import (
	"bytes"
	"encoding/json"
	"math/rand/v2"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"
)

type compatQuestion struct {
	Expr    string `json:"expr"`
	TZ      string `json:"tz"`
	AfterMs int64  `json:"afterMs"`
	N       int    `json:"n"`
}

type compatAnswer struct {
	Fires []int64 `json:"fires"`
	Error string  `json:"error"`
}

// The third oracle is an independent implementation in another language. Prepare it with
// `npm install croner` in a directory of its own, then
//
//	CRON_NPM_DIR=<directory> go test -tags compat -run Croner ./internal/cron
//
// It has different rules for clock changes, so only periods without one are compared.
func TestSearchAgreesWithCroner(t *testing.T) {
	t.Parallel()
	dir := os.Getenv("CRON_NPM_DIR")
	if dir == "" {
		t.Fatal("CRON_NPM_DIR must name a directory in which npm install croner was run")
	}
	questions, mine := compatQuestions(t, 2000)
	var in, out, problems bytes.Buffer
	encoder := json.NewEncoder(&in)
	for _, q := range questions {
		if err := encoder.Encode(q); err != nil {
			t.Fatal(err)
		}
	}
	cmd := exec.CommandContext(t.Context(), "node", "testdata/croner.cjs", dir)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = &in, &out, &problems
	if err := cmd.Run(); err != nil {
		t.Fatalf("running node: %v\n%s", err, problems.String())
	}
	decoder := json.NewDecoder(&out)
	for i, q := range questions {
		var theirs compatAnswer
		if err := decoder.Decode(&theirs); err != nil {
			t.Fatalf("answer %d: %v", i, err)
		}
		if theirs.Error != "" || !slices.Equal(theirs.Fires, mine[i]) {
			t.Errorf("%+v:\nmine   %v\ntheirs %v %s", q, mine[i], theirs.Fires, theirs.Error)
		}
	}
}

// compatQuestions draws expressions that both grammars support.
func compatQuestions(t *testing.T, n int) ([]compatQuestion, [][]int64) {
	t.Helper()
	r := rand.New(rand.NewPCG(11, 12))
	zones := []string{"UTC", "Europe/Berlin", "America/New_York", "Asia/Kathmandu", "Australia/Lord_Howe", "America/Santiago"}
	var questions []compatQuestion
	var answers [][]int64
	for len(questions) < n {
		expr := randomExpression(r)
		s := mustCompile(t, cronSpec(expr, zones[r.IntN(len(zones))]))
		after := time.Unix(1_700_000_000+r.Int64N(100_000_000), 0).UTC()
		if s.wall.fields.narrow || slices.ContainsFunc(strings.Fields(expr), numberedStep) {
			continue
		}
		fires := fires(t, s, after, after.AddDate(0, 2, 0))
		fires = fires[:min(len(fires), 8)]
		if len(fires) == 0 || len(changes(s.Location(), after.AddDate(0, 0, -1), fires[len(fires)-1].Slot.AddDate(0, 0, 1))) > 0 {
			continue
		}
		var ms []int64
		for _, f := range fires {
			ms = append(ms, f.Slot.UnixMilli())
		}
		questions = append(questions, compatQuestion{Expr: expr, TZ: s.Spec().TZ, AfterMs: after.UnixMilli(), N: len(ms)})
		answers = append(answers, ms)
	}
	return questions, answers
}

// numberedStep recognises 5/20, which croner does not support.
func numberedStep(field string) bool { return openEnd(field) && !strings.HasPrefix(field, "*") }
