// Package schedule computes when a schedule fires. It is arithmetic: no
// database, no goroutine and no clock. Every function takes the time it needs
// as an argument, so the same inputs give the same answer on every replica, in
// a preview and in a test.
//
// # Ideas
//
// A [Spec] is what a person wrote: at, every or cron. A [Schedule] is a Spec
// that was checked and compiled; it cannot be made in any other way, so code
// that holds one need not check again. A [Timetable] adds what belongs to one
// job: jitter, a first and a last moment, a number of fires. Preview and firing
// both ask [Timetable.Next]; there is no second way to compute a fire.
//
// A cron expression is about wall time, and wall clocks jump.
// The expression is therefore searched in wall time alone and each found wall
// time is mapped to an instant piece by piece, where a piece is a stretch of
// constant offset of the zone. Two rules decide about the edges of the pieces:
// [GapRule] for wall times that do not exist, [FoldRule] for those that come
// twice. Walking through the pieces in order of absolute time is what makes the
// next fire strictly later than the last one, whatever the zone does.
//
// The meaning of an expression comes from gronx, asked once per value when the
// expression is compiled and never in a zone. The answers are kept as bit sets:
// seconds, minutes, hours, months, and the days of the 28 shapes that a month
// can have (four lengths, seven first weekdays). Searching and counting are bit
// operations. A search by gronx itself costs some hundred times as much and
// stops after 500 steps; the tests use it as one of the judges.
//
// # Promises
//
//   - A fire is strictly later than the instant that was asked about.
//   - All slots that fall into one gap give at most one fire.
//   - A refused schedule comes back as [*InvalidError], with the field, a
//     reason from a closed set and a sentence that names the bound.
//   - Schedule is immutable and safe for concurrent use. So is [Compiler].
//
// # What it does not do
//
// It claims nothing, runs nothing and stores nothing. It reads no default zone
// from the process: a Spec without a zone means UTC unless [Rules] name another.
// Leap seconds do not exist here, as they do not in Unix time. The least
// distance between two fires is measured on the wall clock; the hour of a
// daylight-saving change may bring two fires closer.
//
// There is nothing to start and nothing to stop.
//
// # Example
//
//	s, err := schedule.Check(schedule.Spec{Kind: schedule.KindCron, Expr: "0 9 * * 1-5", TZ: "Europe/Berlin"}, now, schedule.Rules{})
//	if err != nil {
//		return err // schedule.expr: minute 99 is out of range 0-59
//	}
//	fire, ok := s.Next(now) // ok is false when nothing comes any more
package schedule
