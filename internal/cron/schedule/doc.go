// Package schedule computes when a schedule fires. It is pure: it uses no database, no goroutine and no clock. Every function takes the time as an argument, so
// the same inputs give the same result on every replica, in a preview and in a test.
//
// # Ideas
//
// A [Spec] is the schedule as a person wrote it: at, every or cron. A [Schedule] is a Spec that was checked and compiled. It cannot be created in any other
// way, so code that has one need not check again. A [cron.Timetable] adds the settings of one job: jitter, a first and a last moment, a number of fires.
// Preview and firing both call its method Next, which is the only way to compute a fire.
//
// A cron expression describes wall times, and wall clocks jump. The search therefore works in wall time and maps each match to an instant piece by piece, where
// a piece is a period with a constant offset of the zone. Two rules decide about the edges of the pieces: [GapRule] for wall times that do not exist,
// [FoldRule] for those that occur twice. The pieces are searched in the order of absolute time, so the next fire is strictly later than the last one in every
// zone.
//
// gronx defines the meaning of an expression. It is called once per value when the expression is compiled, and never with a zone. The results are stored as bit
// sets: seconds, minutes, hours, months, and the days of the 28 shapes that a month can have (four lengths, seven first weekdays). Searching and counting are
// bit operations. A search by gronx itself costs some hundred times as much and stops after 500 steps; the tests use it as one of the oracles.
//
// # Promises
//
//   - A fire is strictly later than the given instant.
//   - All slots in one gap give at most one fire.
//   - A refused schedule is reported as [*InvalidError], with the field, a
//     reason from a closed set and a sentence that names the bound.
//   - Schedule is immutable and safe for concurrent use. So is [Compiler].
//
// # What it does not do
//
// It claims nothing, runs nothing and stores nothing. It reads no default zone from the process: a Spec without a zone means UTC unless [Rules] name another.
// As in Unix time, leap seconds do not exist. The minimum distance between two fires is measured on the wall clock; in the hour of a daylight-saving change two
// fires may be closer.
//
// The package has nothing to start or stop.
//
// # Example
//
//	s, err := schedule.Check(schedule.Spec{Kind: schedule.KindCron, Expr: "0 9 * * 1-5", TZ: "Europe/Berlin"}, now, schedule.Rules{})
//	if err != nil {
//		return err // schedule.expr: minute 99 is out of range 0-59
//	}
//	fire, ok := s.Next(now) // ok is false when no fire follows
package schedule
