package command_test

import (
	"os"
	"testing"

	"github.com/google/go-cmp/cmp"

	"laneway/internal/agent/agenttest"
	"laneway/internal/agent/command"
	"laneway/internal/chat"
)

func TestFilesOfAProgram(t *testing.T) {
	t.Parallel()
	const fill = `cd "$LANEWAY_OUTPUT_DIR"; echo x >b.txt; echo x >a.txt; mkdir sub; echo x >sub/deep.txt; ln -s a.txt link; mkfifo pipe; `
	for name, tt := range map[string]struct {
		script string
		text   string
		want   []chat.Attachment
	}{
		"PlainTextSendsWhatLiesThere": {fill + `echo done`, "done\n", []chat.Attachment{{Path: "a.txt"}, {Path: "b.txt"}}},
		"SoDoesNoTextAtAll":           {fill, "", []chat.Attachment{{Path: "a.txt"}, {Path: "b.txt"}}},
		"JSONLinesSendWhatTheyName": {
			fill + `echo '{"delta":"done"}'; echo '{"attach":{"path":"sub/deep.txt","name":"Deep.txt","mimeType":"text/csv"}}'; echo '{"attach":{"path":"../x"}}'`,
			"done",
			[]chat.Attachment{{Path: "sub/deep.txt", Name: "Deep.txt", MIMEType: "text/csv"}, {Path: "../x"}}, // the gateway refuses it with a sentence
		},
		"AFileMayBeTheWholeAnswer": {fill + `echo '{"attach":{"path":"b.txt"}}'`, "", []chat.Attachment{{Path: "b.txt"}}},
		"WhatIsNoFileIsShown":      {`echo '{"attach":"b.txt"}'`, "{\"attach\":\"b.txt\"}\n", nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			req := agenttest.Request("x")
			dir := t.TempDir()
			req.OutputDir = func() (string, error) { return dir, nil }
			got, err := ask(t, shell(t, tt.script, command.Config{}), req)
			if diff := cmp.Diff(tt.want, got.Attachments); err != nil || got.Text != tt.text || diff != "" {
				t.Errorf("text %q, %v, files (-want +got):\n%s", got.Text, err, diff)
			}
		})
	}
}

func TestAProgramWithoutADirectoryForFilesAnswersAllTheSame(t *testing.T) {
	t.Parallel()
	req := agenttest.Request("x")
	req.OutputDir = func() (string, error) { return "", os.ErrPermission }
	got, err := ask(t, shell(t, `echo "dir: $LANEWAY_OUTPUT_DIR"`, command.Config{}), req)
	if err != nil || got.Text != "dir: \n" || got.Attachments != nil {
		t.Errorf("got %+v, %v", got, err)
	}
}
