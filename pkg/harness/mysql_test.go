package harness

import (
	"database/sql"
	"testing"
	"time"
)

func openDatabase(t *testing.T, dsn string) *sql.DB {
	t.Helper()
	db, err := sql.Open("mysql", dsn)
	must(t, err)
	t.Cleanup(func() { _ = db.Close() })
	return db
}

func TestMariaDBKeepsACommittedRowAfterSIGKILL(t *testing.T) {
	server := MariaDB(t)
	db := openDatabase(t, server.NewDatabase(t))
	_, err := db.ExecContext(t.Context(), "CREATE TABLE kept (id INT PRIMARY KEY, at DATETIME(6))")
	must(t, err)
	at := time.Date(2030, 1, 2, 3, 4, 5, 0, time.UTC)
	_, err = db.ExecContext(t.Context(), "INSERT INTO kept VALUES (1, ?)", at)
	must(t, err)

	server.Kill()
	server.Start()

	var got time.Time
	must(t, db.QueryRowContext(t.Context(), "SELECT at FROM kept WHERE id = 1").Scan(&got))
	if got != at {
		t.Fatalf("time is %v, want %v", got, at)
	}
}

func TestStoppedMariaDBStartsAgain(t *testing.T) {
	server := MariaDB(t)
	db := openDatabase(t, server.NewDatabase(t))

	server.Stop()
	if err := db.PingContext(t.Context()); err == nil {
		t.Fatal("a stopped server answered")
	}
	server.Start()

	must(t, db.PingContext(t.Context()))
}

func TestSharedMariaDBGivesEachTestItsOwnDatabase(t *testing.T) {
	var names [2]string
	for i := range names {
		db := openDatabase(t, SharedMariaDB(t).NewDatabase(t))
		_, err := db.ExecContext(t.Context(), "CREATE TABLE mine (id INT PRIMARY KEY)")
		must(t, err)
		must(t, db.QueryRowContext(t.Context(), "SELECT DATABASE()").Scan(&names[i]))
	}
	if names[0] == names[1] {
		t.Fatalf("both got %s", names[0])
	}
}
