// Package index caches what was read from the bundles of a store, in a database beside them.
//
// A database that is damaged, or that another version of the program wrote, is made anew: another version may read a
// bundle in another way. The index is used only in a folder that nobody else can write to, since it decides what a
// query finds.
package index

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"hash/crc32"
	"net/url"
	"os"
	"path/filepath"
	"syscall"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"modernc.org/sqlite"
	sqlite3 "modernc.org/sqlite/lib"

	"github.com/assay-run/assay-run/archive/store"
)

// Name is the database's name in the store.
const Name = ".index.sqlite"

// table has a row for each bundle; see store.Known.
const table = `create table bundles (
	file text primary key, stamp text not null, entry text not null, facts text, lists text
) without rowid`

// Index is the index of one store. Several goroutines and processes may use it at the same time.
type Index struct{ db *sql.DB }

var errUnsafe = errors.New("others can write to the folder")

// Open opens the index of the store in dir, which must exist, for this version of the program. It makes the database if
// it is missing, damaged or of another version, and refuses a folder that others can write to.
func Open(ctx context.Context, dir, version string) (*Index, error) {
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
	number := int32(crc32.ChecksumIEEE([]byte(version + table)))
	x, err := open(ctx, path, number)
	if !damaged(err) {
		return x, err
	}
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, err
	}
	return open(ctx, path, number)
}

var errNotRegular = errors.New("not a regular file")

// damaged reports whether err says that the file is not a database.
func damaged(err error) bool {
	var e *sqlite.Error
	return errors.Is(err, errNotRegular) || errors.As(err, &e) &&
		(e.Code() == sqlite3.SQLITE_NOTADB || e.Code() == sqlite3.SQLITE_CORRUPT)
}

func open(ctx context.Context, path string, version int32) (_ *Index, err error) {
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
	var is int32
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

// Known returns what is known of all bundles; see [store.Index].
func (x *Index) Known(ctx context.Context) (map[string]store.Known, error) {
	all, err := x.known(ctx)
	if err != nil {
		return nil, fmt.Errorf("read the store's index: %w", err)
	}
	return all, nil
}

func (x *Index) known(ctx context.Context) (map[string]store.Known, error) {
	rows, err := x.db.QueryContext(ctx, "select file, stamp, entry, facts from bundles")
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	all := map[string]store.Known{}
	for rows.Next() {
		var file string
		var entry []byte
		var k store.Known
		if err := rows.Scan(&file, &k.Stamp, &entry, &k.Facts); err != nil {
			return nil, err
		}
		if err := json.Unmarshal(entry, &k.Entry); err != nil {
			return nil, err
		}
		all[file] = k
	}
	return all, rows.Err()
}

// Lists returns the lists of a bundle whose file has this stamp; nil if it does not have them.
func (x *Index) Lists(ctx context.Context, file, stamp string) (lists []byte, err error) {
	err = x.db.QueryRowContext(ctx, "select lists from bundles where file = ? and stamp = ?", file, stamp).Scan(&lists)
	if err != nil && !errors.Is(err, sql.ErrNoRows) {
		return nil, fmt.Errorf("read the store's index: %w", err)
	}
	return lists, nil
}

// maxLists limits the lists of one bundle, in bytes. Larger ones are not kept.
const maxLists = 1 << 20

// Update adds what was read and removes files; see [store.Index].
func (x *Index) Update(ctx context.Context, read map[string]store.Known, gone []string) error {
	err := x.do(ctx, func(tx *sql.Tx) error {
		for _, file := range gone {
			if _, err := tx.ExecContext(ctx, "delete from bundles where file = ?", file); err != nil {
				return err
			}
		}
		for file, k := range read {
			k.Entry.Path = "" // the store's folder may be renamed
			entry, err := json.Marshal(k.Entry, jsontext.AllowInvalidUTF8(true))
			if err != nil {
				return err
			}
			if len(k.Lists) > maxLists {
				k.Lists = nil
			}
			if _, err := tx.ExecContext(ctx, "insert or replace into bundles values (?, ?, ?, ?, ?)", file, k.Stamp,
				string(entry), k.Facts, k.Lists); err != nil {
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

// private reports whether nobody but this user can write to a folder.
func private(info os.FileInfo) bool {
	st, ok := info.Sys().(*syscall.Stat_t)
	return ok && int(st.Uid) == os.Geteuid() && info.Mode().Perm()&0o022 == 0
}
