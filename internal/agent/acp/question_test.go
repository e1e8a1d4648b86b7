package acp_test

import (
	"context"
	"strings"
	"testing"

	sdk "github.com/coder/acp-go-sdk"
	"github.com/google/go-cmp/cmp"

	"laneway/internal/agent"
	"laneway/internal/agent/acp"
)

// TestAQuestionIsASentenceThatHidesNothing plays requests of agents. The question must have the command or the path, the directory, and Allow or Deny before each
// label.
func TestAQuestionIsASentenceThatHidesNothing(t *testing.T) {
	t.Parallel()
	option := func(kind sdk.PermissionOptionKind, name string) sdk.PermissionOption {
		return sdk.PermissionOption{Kind: kind, Name: name, OptionId: sdk.PermissionOptionId(name)}
	}
	allow, reject := option(sdk.PermissionOptionKindAllowOnce, "Allow"), option(sdk.PermissionOptionKindRejectOnce, "Reject")
	plain := []agent.Option{{Label: "Allow", Allow: true}, {Label: "Deny: Reject"}}
	for name, tt := range map[string]struct {
		call    sdk.ToolCallUpdate
		options []sdk.PermissionOption
		text    string
		want    []agent.Option
	}{
		"Command": {
			sdk.ToolCallUpdate{
				Title: new("`rm -rf build`"), Kind: new(sdk.ToolKindExecute), RawInput: map[string]any{"command": "rm -rf build", "description": "Clean"},
			},
			[]sdk.PermissionOption{allow, reject},
			`run the command “rm -rf build” in the directory “/”; with “description” = “Clean”`, plain,
		},
		"CommandAsList": {
			sdk.ToolCallUpdate{Title: new("Shell"), RawInput: map[string]any{"command": []string{"sh", "-c", "ls"}, "cwd": "/other"}},
			[]sdk.PermissionOption{allow, reject},
			`run the command “sh -c ls” in the directory “/other”, with the tool “Shell”`, plain,
		},
		"File": {
			sdk.ToolCallUpdate{
				Title: new("Write"), Kind: new(sdk.ToolKindEdit), Locations: []sdk.ToolCallLocation{{Path: "/a"}, {Path: "/b"}}, RawInput: map[string]any{"file_path": "/a"},
			},
			[]sdk.PermissionOption{allow, reject},
			`change the file “/a” in the directory “/”, with the tool “Write”, at “/b”`, plain,
		},
		"Tool": {
			sdk.ToolCallUpdate{Title: new("mcp.pay"), RawInput: map[string]any{"amount": 12, "to": map[string]any{"iban": "X"}}},
			[]sdk.PermissionOption{allow, reject},
			`use the tool “mcp.pay” in the directory “/”; with “amount” = “12”, “to” = “{"iban":"X"}”`, plain,
		},
		"Long": {
			sdk.ToolCallUpdate{RawInput: map[string]any{"command": strings.Repeat("x", 1001)}},
			[]sdk.PermissionOption{allow, reject},
			"run the command “" + strings.Repeat("x", 1000) + "…” in the directory “/”", plain,
		},
		"Nothing": {
			sdk.ToolCallUpdate{}, []sdk.PermissionOption{allow, reject}, `something that it does not name in the directory “/”`, plain,
		},
		"Hidden": {
			sdk.ToolCallUpdate{Title: new("harmless”\nWrite /allow x\u200b\u202e\U000e0041"), RawInput: map[string]any{"command": "a\u200db”\u3164"}},
			[]sdk.PermissionOption{option(sdk.PermissionOptionKindAllowOnce, "De\u200bny"), reject},
			`run the command “a\u200db\u201d\u3164” in the directory “/”, with the tool “harmless\u201d\u000aWrite /allow x\u200b\u202e\ue0041”`,
			[]agent.Option{{Label: `Allow: De\u200bny`, Allow: true}, {Label: "Deny: Reject"}},
		},
		"Labels": {
			sdk.ToolCallUpdate{Title: new("t")},
			[]sdk.PermissionOption{
				option(sdk.PermissionOptionKindAllowOnce, "Deny"), option(sdk.PermissionOptionKindAllowAlways, "Just once"),
				option(sdk.PermissionOptionKindAllowAlways, "always for this command"), option(sdk.PermissionOptionKindRejectOnce, "Allow"),
				option(sdk.PermissionOptionKindAllowOnce, "allow this change"),
				option(sdk.PermissionOptionKindRejectAlways, " "),
			},
			`use the tool “t” in the directory “/”`,
			[]agent.Option{
				{Label: "Allow: Deny", Allow: true},
				{Label: "Allow always: Just once", Allow: true, Always: true},
				{Label: "Allow: always for this command", Allow: true, Always: true},
				{Label: "Deny: Allow"},
				{Label: "Allow: this change", Allow: true},
				{Label: "Deny always", Always: true},
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			tt.call.ToolCallId = "c"
			var asked agent.Question
			req := request("a", "run", "go")
			req.Asker = asker(func(_ context.Context, q agent.Question) (int, error) { asked = q; return 1, nil })
			runner := open(t, script{Asks: 1, Wants: &sdk.RequestPermissionRequest{ToolCall: tt.call, Options: tt.options}}, acp.Config{Dir: "/"})
			if _, err := run(t, runner, req); err != nil {
				t.Fatal(err)
			}
			act, _, _ := strings.Cut(tt.text, "; with ")
			if strings.Contains(act, "does not name") || strings.Contains(act, "…") {
				act = "" // an answer applies only to this question
			}
			if diff := cmp.Diff(agent.Question{Text: tt.text, Act: act, Options: tt.want}, asked); diff != "" {
				t.Errorf("question (-want +got):\n%s", diff)
			}
		})
	}
}
