package dirs

import (
	"context"
	"errors"
	"fmt"
	"math"
	"path/filepath"
	"time"

	"github.com/godbus/dbus/v5"
	"golang.org/x/sys/unix"

	"github.com/assay-run/assay-run/cgroup/internal/procs"
)

// systemdTime bounds how long systemd is waited for.
const systemdTime = 20 * time.Second

// Names of systemd's on D-Bus: org.freedesktop.systemd1(5).
const (
	systemdName  = "org.freedesktop.systemd1"
	managerName  = systemdName + ".Manager."
	noSuchUnit   = systemdName + ".NoSuchUnit"
	unitExists   = systemdName + ".UnitExists"
	systemSocket = "unix:path=/run/dbus/system_bus_socket" // also in a guard, which has no environment
)

// manager is a connection to the system's systemd.
type manager struct {
	ctx    context.Context
	cancel context.CancelFunc
	bus    *dbus.Conn
}

// connect connects to systemd, for systemdTime at most.
func connect() (*manager, error) {
	m := &manager{}
	m.ctx, m.cancel = context.WithTimeout(context.Background(), systemdTime)
	var err error
	if m.bus, err = dbus.Connect(systemSocket, dbus.WithContext(m.ctx)); err != nil {
		m.cancel()
		return nil, fmt.Errorf("connect to D-Bus: %w", err)
	}
	return m, nil
}

func (m *manager) close() {
	m.bus.Close()
	m.cancel()
}

// call calls a method of the manager for a unit, and stores its answer in into, if that is
// not nil.
func (m *manager) call(into any, method, unit string, args ...any) error {
	answer := m.bus.Object(systemdName, "/org/freedesktop/systemd1").CallWithContext(m.ctx, managerName+method, 0,
		append([]any{unit}, args...)...)
	err := answer.Err
	if err == nil && into != nil {
		err = answer.Store(into)
	}
	if err != nil {
		return fmt.Errorf("systemd: %s %s: %w", method, unit, err)
	}
	return nil
}

// property is a text property of a unit. The unit is not there if ok is false.
func (m *manager) property(unit, name string) (value string, ok bool, err error) {
	var at dbus.ObjectPath
	if err := m.call(&at, "GetUnit", unit); is(err, noSuchUnit) {
		return "", false, nil
	} else if err != nil {
		return "", false, err
	}
	err = m.bus.Object(systemdName, at).CallWithContext(m.ctx, "org.freedesktop.DBus.Properties.Get", 0,
		systemdName+".Unit", name).Store(&value)
	if is(err, noSuchUnit) || is(err, "org.freedesktop.DBus.Error.UnknownObject") { // it went meanwhile
		return "", false, nil
	}
	if err != nil {
		return "", false, fmt.Errorf("systemd: %s of %s: %w", name, unit, err)
	}
	return value, true, nil
}

// is reports whether an error is systemd's of that name.
func is(err error, name string) bool {
	var failed dbus.Error
	return errors.As(err, &failed) && failed.Name == name
}

// description identifies the slices of runs.
func description(runID string) string { return "processes and containers of assay-run " + runID }

// isOurs reports whether a slice is a run's, and not a unit of somebody else's that has such a
// name. A run's has one for containers below it, also if an engine that restarts a container
// made both again, or the description. One that systemd has forgotten is a run's.
func isOurs(d dir, runID string) (bool, error) {
	if exists(containersPath(d)) {
		return true, nil
	}
	m, err := connect()
	if err != nil {
		return false, err
	}
	defer m.close()
	text, loaded, err := m.property(filepath.Base(d.path), "Description")
	return err == nil && (!loaded || text == description(runID)), err
}

// setting is a property of a unit that is to be started.
type setting struct {
	Name  string
	Value dbus.Variant
}

// startSlice makes systemd start a slice, and returns when its directory is there. The
// error wraps procs.ErrInUse if there is a unit of that name.
func startSlice(path, runID string, l Limits) error {
	m, err := connect()
	if err != nil {
		return err
	}
	defer m.close()
	properties := []setting{{"Description", dbus.MakeVariant(description(runID))}}
	for _, name := range []string{"CPUAccounting", "MemoryAccounting", "TasksAccounting", "IOAccounting"} {
		properties = append(properties, setting{name, dbus.MakeVariant(true)})
	}
	set := func(name string, value uint64) {
		properties = append(properties, setting{name, dbus.MakeVariant(value)})
	}
	set("TasksMax", math.MaxUint64)
	if l.Pids > 0 {
		set("TasksMax", uint64(l.Pids))
	}
	if l.MemoryBytes > 0 {
		set("MemoryMax", uint64(l.MemoryBytes))
		set("MemorySwapMax", 0)
	}
	if l.CPUMilli > 0 {
		set("CPUQuotaPerSecUSec", uint64(quota(l.CPUMilli))*uint64(time.Second/time.Microsecond)/period)
	}
	auxiliary := []struct {
		Name       string
		Properties []setting
	}{}
	if err := m.call(nil, "StartTransientUnit", filepath.Base(path), "replace", properties, auxiliary); is(err,
		unitExists) {
		return fmt.Errorf("%w: %w", err, procs.ErrInUse)
	} else if err != nil {
		return err
	}
	for !exists(path) {
		if m.ctx.Err() != nil {
			return errors.Join(fmt.Errorf("systemd did not make the cgroup %s", path), stopSlice(path))
		}
		time.Sleep(time.Millisecond)
	}
	return nil
}

// stopSlice makes systemd forget a slice, if it has not done so already, and returns when the slice and its directory
// are gone. No process may be left in it. If it fails, the next sweep finds the directory.
func stopSlice(path string) error {
	m, err := connect()
	if err != nil {
		return err
	}
	defer m.close()
	unit := filepath.Base(path)
	if err := m.call(nil, "StopUnit", unit, "replace"); err != nil && !is(err, noSuchUnit) {
		return err
	}
	for {
		state, loaded, err := m.property(unit, "ActiveState")
		if err != nil {
			return err
		}
		if !loaded || state == "inactive" {
			break
		}
		time.Sleep(time.Millisecond)
	}
	if err := unix.Rmdir(path); err != nil && err != unix.ENOENT { // systemd only tries
		return fmt.Errorf("remove cgroup %s: %w", path, err)
	}
	return nil
}
