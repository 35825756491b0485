package leaktest

import "reflect"

// Entries counts what is reachable from v: elements of slices, maps and channels, however deep. Their number, unlike
// that of bytes, does not depend on the garbage collector.
func Entries(v any) int { return entries(reflect.ValueOf(v), map[uintptr]bool{}) }

func entries(v reflect.Value, seen map[uintptr]bool) (n int) {
	switch v.Kind() {
	case reflect.Pointer:
		if v.IsNil() || seen[v.Pointer()] {
			return 0
		}
		seen[v.Pointer()] = true
		return entries(v.Elem(), seen)
	case reflect.Interface:
		if v.IsNil() {
			return 0
		}
		return entries(v.Elem(), seen)
	case reflect.Struct:
		for i := range v.NumField() {
			n += entries(v.Field(i), seen)
		}
	case reflect.Map:
		n = v.Len()
		for it := v.MapRange(); it.Next(); {
			n += entries(it.Value(), seen)
		}
	case reflect.Array, reflect.Slice:
		if v.Kind() == reflect.Slice {
			n = v.Len()
		}
		switch v.Type().Elem().Kind() {
		case reflect.Pointer, reflect.Interface, reflect.Struct, reflect.Map, reflect.Slice, reflect.Array:
			for i := range v.Len() {
				n += entries(v.Index(i), seen)
			}
		}
	case reflect.Chan:
		n = v.Len()
	}
	return n
}
