// Package index caches what was read from the bundles of a store, in a database beside them.
//
// A damaged database is rebuilt, and an entry of a bundle whose file has changed is ignored.
// The index is used only in a folder that nobody else can write to, since it decides what a
// query finds.
package index

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"modernc.org/sqlite"
	sqlite3 "modernc.org/sqlite/lib"

	"github.com/assay-run/assay-run/archive/store"
)

// Name is the database's name in the store.
const Name = ".index.sqlite"

// version is the version of the table and of its contents. A database with another version is rebuilt.
const version = 2

// table has a row for each bundle. facts and lists (see query.Facts) are NULL until a query has verified the bundle.
const table = `create table bundles (
	file text primary key, stamp text not null, entry text not null, facts text, lists text
) without rowid`

// Index is the index of one store. Several goroutines and processes may use it at the same time.
type Index struct{ db *sql.DB }

var errUnsafe = errors.New("others can write to the folder")

// Open opens the index of the store in dir, which must exist. It makes the database if it is missing or damaged, and
// refuses a folder that others can write to.
func Open(ctx context.Context, dir string) (*Index, error) {
	info, err := os.Stat(dir)
	if err != nil {
		return nil, err
	}
	if !private(info) {
		return nil, fmt.Errorf("index of %s: %w", dir, errUnsafe)
	}
	path, err := filepath.Abs(filepath.Join(dir, Name))
	if err != nil {
		return nil, err
	}
	x, err := open(ctx, path)
	if !damaged(err) {
		return x, err
	}
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, err
	}
	return open(ctx, path)
}

var errNotRegular = errors.New("not a regular file")

// damaged reports whether err says that the file is not a database.
func damaged(err error) bool {
	var e *sqlite.Error
	return errors.Is(err, errNotRegular) || errors.As(err, &e) &&
		(e.Code() == sqlite3.SQLITE_NOTADB || e.Code() == sqlite3.SQLITE_CORRUPT)
}

func open(ctx context.Context, path string) (_ *Index, err error) {
	if info, err := os.Lstat(path); err == nil && !info.Mode().IsRegular() {
		return nil, fmt.Errorf("open %s: %w", path, errNotRegular)
	}
	// The driver would make a file that other users can read. They must not, as with the bundles.
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	f.Close()
	options := url.Values{"_pragma": {"busy_timeout(10000)", "synchronous(off)"}, "_txlock": {"immediate"}}
	at := url.URL{Scheme: "file", Path: filepath.ToSlash(path), RawQuery: options.Encode()}
	db, err := sql.Open("sqlite", at.String())
	if err != nil {
		return nil, fmt.Errorf("open %s: %w", path, err)
	}
	x := &Index{db}
	defer func() {
		if err != nil {
			err = errors.Join(fmt.Errorf("open %s: %w", path, err), x.Close())
		}
	}()
	var is int
	if err := db.QueryRowContext(ctx, "pragma user_version").Scan(&is); err != nil || is == version {
		return x, err
	}
	return x, x.do(ctx, func(tx *sql.Tx) error {
		// Another process may have made the table meanwhile.
		if err := tx.QueryRowContext(ctx, "pragma user_version").Scan(&is); err != nil || is == version {
			return err
		}
		for _, statement := range []string{"drop table if exists bundles", table,
			fmt.Sprintf("pragma user_version = %d", version)} {
			if _, err := tx.ExecContext(ctx, statement); err != nil {
				return err
			}
		}
		return nil
	})
}

// Close closes the database.
func (x *Index) Close() error { return x.db.Close() }

// do runs change in a transaction.
func (x *Index) do(ctx context.Context, change func(*sql.Tx) error) error {
	tx, err := x.db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	if err := change(tx); err != nil {
		return errors.Join(err, tx.Rollback())
	}
	return tx.Commit()
}

// each calls read with each row of a query.
func (x *Index) each(ctx context.Context, query string, read func(*sql.Rows) error) error {
	rows, err := x.db.QueryContext(ctx, query)
	if err != nil {
		return fmt.Errorf("read the store's index: %w", err)
	}
	defer rows.Close()
	for rows.Next() {
		if err := read(rows); err != nil {
			return fmt.Errorf("read the store's index: %w", err)
		}
	}
	return rows.Err()
}

// Entries returns the entries of all bundles; see [store.Index].
func (x *Index) Entries(ctx context.Context) (map[string]store.Indexed, error) {
	all := map[string]store.Indexed{}
	err := x.each(ctx, "select file, stamp, entry from bundles", func(r *sql.Rows) error {
		var file string
		var entry []byte
		var i store.Indexed
		if err := r.Scan(&file, &i.Stamp, &entry); err != nil {
			return err
		}
		err := json.Unmarshal(entry, &i.Entry)
		all[file] = i
		return err
	})
	return all, err
}

// Update adds entries and removes files; see [store.Index].
func (x *Index) Update(ctx context.Context, read map[string]store.Indexed, gone []string) error {
	err := x.do(ctx, func(tx *sql.Tx) error {
		for _, file := range gone {
			if _, err := tx.ExecContext(ctx, "delete from bundles where file = ?", file); err != nil {
				return err
			}
		}
		for file, i := range read {
			if err := put(ctx, tx, file, i, nil, nil); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("write the store's index: %w", err)
	}
	return nil
}

func put(ctx context.Context, tx *sql.Tx, file string, i store.Indexed, facts, lists []byte) error {
	i.Entry.Path = "" // the store's folder may be renamed
	entry, err := json.Marshal(i.Entry, jsontext.AllowInvalidUTF8(true))
	if err != nil {
		return err
	}
	_, err = tx.ExecContext(ctx, "insert or replace into bundles values (?, ?, ?, ?, ?)", file, i.Stamp, string(entry),
		facts, lists)
	return err
}

// Verified is what a query read from a bundle that verifies; see query.Facts.
type Verified struct {
	store.Indexed
	Facts []byte // JSON
	Lists []byte // JSON; nil if it is larger than maxLists or was not asked for
}

// Verified returns what is known of the verified bundles, by file name, with or without the lists.
func (x *Index) Verified(ctx context.Context, lists bool) (map[string]Verified, error) {
	columns := "facts, null"
	if lists {
		columns = "facts, lists"
	}
	all := map[string]Verified{}
	err := x.each(ctx, "select file, stamp, entry, "+columns+" from bundles where facts is not null",
		func(r *sql.Rows) error {
			var file string
			var entry []byte
			var v Verified
			if err := r.Scan(&file, &v.Stamp, &entry, &v.Facts, &v.Lists); err != nil {
				return err
			}
			err := json.Unmarshal(entry, &v.Entry)
			all[file] = v
			return err
		})
	return all, err
}

// maxLists limits the lists of one bundle, in bytes. Larger ones are not kept.
const maxLists = 1 << 20

// Remember adds what a query read, by file name.
func (x *Index) Remember(ctx context.Context, all map[string]Verified) error {
	err := x.do(ctx, func(tx *sql.Tx) error {
		for file, v := range all {
			if len(v.Lists) > maxLists {
				v.Lists = nil
			}
			if err := put(ctx, tx, file, v.Indexed, v.Facts, v.Lists); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("write the store's index: %w", err)
	}
	return nil
}
