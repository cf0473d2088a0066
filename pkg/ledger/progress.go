package ledger

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"slices"

	"gorm.io/gorm"
	"gorm.io/gorm/clause"
)

// Range is the stream sequences First to Last, both inclusive.
type Range struct {
	First, Last uint64
	// LastAt is the stream's time of the message Last, in Unix ns. It tells that
	// message from another one that a stream, restored from an older copy, gave
	// the same sequence to.
	LastAt int64
}

// mergeRanges unites ranges that overlap or touch, and sorts them.
func mergeRanges(ranges []Range) []Range {
	sorted := slices.Clone(ranges)
	slices.SortFunc(sorted, func(a, b Range) int { return cmp.Or(cmp.Compare(a.First, b.First), cmp.Compare(a.Last, b.Last)) })
	var merged []Range
	for _, r := range sorted {
		if n := len(merged); n > 0 && (r.First <= merged[n-1].Last || r.First-1 == merged[n-1].Last) {
			if r.Last > merged[n-1].Last {
				merged[n-1].Last, merged[n-1].LastAt = r.Last, r.LastAt
			}
			continue
		}
		merged = append(merged, r)
	}
	return merged
}

// Floor is the last sequence of the written messages that follow each other
// from firstSeq on, and its LastAt; firstSeq-1 and 0 when the first is not written.
func Floor(ranges []Range, firstSeq uint64) (seq uint64, at int64) {
	for _, r := range mergeRanges(ranges) {
		if r.First <= firstSeq && firstSeq <= r.Last {
			return r.Last, r.LastAt
		}
	}
	return max(firstSeq, 1) - 1, 0
}

// stillTrue drops the stored ranges that a written message gives the lie: it has
// a sequence of theirs, and yet it is younger than their end. They were written
// before the stream was restored from an older copy.
func stillTrue(stored, done []Range) []Range {
	return slices.DeleteFunc(slices.Clone(stored), func(s Range) bool {
		return slices.ContainsFunc(done, func(d Range) bool {
			return s.First <= d.Last && d.Last <= s.Last && d.LastAt > s.LastAt
		})
	})
}

// extendProgress adds ranges to what is written. The rows stay few: ranges that
// meet become one.
func extendProgress(tx *gorm.DB, streamID int64, done []Range) error {
	if len(done) == 0 {
		return nil
	}
	for _, r := range done {
		if r.First > r.Last || r.Last > math.MaxInt64 {
			return fmt.Errorf("progress: %d to %d is no range", r.First, r.Last)
		}
	}
	before, err := progressOf(tx.Clauses(clause.Locking{Strength: "UPDATE"}), streamID)
	if err != nil {
		return err
	}
	after := mergeRanges(append(stillTrue(before, done), done...))
	if err := replaceProgress(tx, streamID, before, after); err != nil {
		return fmt.Errorf("write progress: %w", err)
	}
	return nil
}

// replaceProgress writes what differs. A row that another transaction has
// inserted meanwhile makes a duplicate key, and the transaction begins again.
func replaceProgress(tx *gorm.DB, streamID int64, before, after []Range) error {
	wanted := make(map[uint64]Range, len(after))
	for _, r := range after {
		wanted[r.First] = r
	}
	stored := make(map[uint64]bool, len(before))
	for _, r := range before {
		stored[r.First] = true
		row := tx.Model(&progressRow{}).Where("stream_id = ? AND first_seq = ?", streamID, int64(r.First))
		var err error
		switch want, kept := wanted[r.First]; {
		case !kept:
			err = row.Delete(&progressRow{}).Error
		case want != r:
			err = row.UpdateColumns(map[string]any{"last_seq": int64(want.Last), "last_at": want.LastAt}).Error
		}
		if err != nil {
			return err
		}
	}
	for _, r := range after {
		if stored[r.First] {
			continue
		}
		row := progressRow{StreamID: streamID, FirstSeq: int64(r.First), LastSeq: int64(r.Last), LastAt: r.LastAt}
		if err := tx.Create(&row).Error; err != nil {
			return err
		}
	}
	return nil
}

func progressOf(tx *gorm.DB, streamID int64) ([]Range, error) {
	var rows []progressRow
	if err := tx.Where("stream_id = ?", streamID).Order("first_seq").Find(&rows).Error; err != nil {
		return nil, fmt.Errorf("read progress: %w", err)
	}
	ranges := make([]Range, len(rows))
	for i, r := range rows {
		ranges[i] = Range{First: uint64(r.FirstSeq), Last: uint64(r.LastSeq), LastAt: r.LastAt}
	}
	return ranges, nil
}

// Progress returns the written sequences of a stream, merged and sorted.
func (l *Ledger) Progress(ctx context.Context, streamID int64) ([]Range, error) {
	ranges, err := progressOf(l.read.WithContext(ctx), streamID)
	if err != nil {
		return nil, err
	}
	return mergeRanges(ranges), nil
}

// ForgetProgress forgets what is written of a stream. The orders stay: written
// again, their grants are duplicates.
func (l *Ledger) ForgetProgress(ctx context.Context, streamID int64) error {
	return l.change(ctx, "forget progress", func(tx *gorm.DB) error {
		return tx.Where("stream_id = ?", streamID).Delete(&progressRow{}).Error
	})
}
