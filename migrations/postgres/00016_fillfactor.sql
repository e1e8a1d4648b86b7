-- Half of each new page of these tables stays free. A claim fills pages with new rows, and start and end then update every one of them: a
-- row version that fits into the page of the old one writes no index entry. It holds for pages that are written from now on.

-- +goose Up
ALTER TABLE inbox SET (fillfactor = 50);
ALTER TABLE runs SET (fillfactor = 50);
ALTER TABLE sessions SET (fillfactor = 50);
ALTER TABLE cron_run_logs SET (fillfactor = 50);

-- +goose Down
ALTER TABLE inbox SET (fillfactor = 70);
ALTER TABLE runs SET (fillfactor = 80);
ALTER TABLE sessions SET (fillfactor = 70);
ALTER TABLE cron_run_logs SET (fillfactor = 70);
