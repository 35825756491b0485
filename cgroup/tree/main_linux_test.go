package tree

import (
	"os"
	"testing"

	"github.com/assay-run/assay-run/.ci/leaktest"
)

func TestMain(m *testing.M) { os.Exit(leaktest.Of(m).Run()) }
