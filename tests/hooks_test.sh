#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-2-Clause
# What the hooks of git (tools/hooks) refuse and let through, in a repository made for it.
# Usage: hooks_test.sh SOURCE_DIR
set -u
for program in clang-format-14 shellcheck; do
  command -v "$program" >/dev/null || { echo "$program is not installed"; exit 77; }
done
directory=$(mktemp -d)
trap 'rm -r "$directory"' EXIT
unset "${!GIT_@}"
export GIT_AUTHOR_NAME=test GIT_AUTHOR_EMAIL=test@example.invalid GIT_COMMITTER_NAME=test GIT_COMMITTER_EMAIL=test@example.invalid
export GIT_CONFIG_GLOBAL=/dev/null GIT_CONFIG_NOSYSTEM=1
cd "$directory" || exit 1
git init --quiet --initial-branch=main .
mkdir -p tools tests docs
cp -r "$1/tools/lib" "$1/tools/lint" "$1/tools/hooks" tools/
cp "$1/.clang-format" .
cat >rooms.toml <<'ROOMS'
# SPDX-License-Identifier: BSD-2-Clause
[[room]]
path = "wire"
includes = []
ROOMS
printf '__pycache__/\n' >.gitignore
rm -rf tools/lib/__pycache__
git add --all
git commit --quiet --message 'all: what is needed' || exit 1
git config core.hooksPath tools/hooks
failures=0

# commits CODE SAYS MESSAGE [ARGUMENT...]: git commit ends with CODE and says SAYS.
commits() {
  local code=$1 says=$2 message=$3 output actual
  shift 3
  output=$(git commit --message "$message" "$@" 2>&1)
  actual=$?
  if [[ $actual -ne $code ]] || ! grep -q -- "$says" <<<"$output"; then
    printf 'FAILED: %s\n  exit code %s, said:\n%s\n' "$message" "$actual" "$output"
    failures=$((failures + 1))
  fi
  git reset --quiet --hard
}
# source FILE LINE...: a source with a licence.
source_file() { mkdir -p "$(dirname "$1")" && printf '%s\n' '// SPDX-License-Identifier: BSD-2-Clause' "${@:2}" >"$1"; }

source_file wire/good.cc 'extern int good;'
git add wire
commits 0 'good.cc' 'wire: a good one'

source_file wire/bad.cc 'extern  int bad ;'
git add wire
commits 1 'clang-format is not content' 'wire: a wrongly formatted one'

source_file wire/bad.cc 'extern  int bad ;'
git add wire
source_file wire/bad.cc 'extern int bad;'
commits 1 'clang-format is not content' 'wire: formatted in the work tree only'

source_file wire/half.cc 'extern int half;'
git add wire
source_file wire/half.cc 'extern  int half ;'
commits 0 'half.cc' 'wire: wrong in the work tree only'

source_file wire/outside.cc '#include "broker/client/link.h"'
git add wire
commits 1 'wire/outside.cc:2: wire/ may include only itself' 'wire: an include of another room'

printf '#!/bin/bash\n# SPDX-License-Identifier: BSD-2-Clause\nif true; then\n' >tools/broken
git add tools/broken
commits 1 'shellcheck is not content' 'tools: a broken script'

printf '#!/usr/bin/env python3\n# SPDX-License-Identifier: BSD-2-Clause\nimport os\n' >tools/unused
git add tools/unused
commits 1 'pyflakes is not content' 'tools: an unused import'

mkdir -p wire
printf 'extern int x;\n' >wire/nobodys.cc
git add wire
commits 1 'licences is not content' 'wire: without a licence'

# Only one file of two: git gives the hook an index of its own.
source_file wire/one.cc 'extern int one;'
source_file wire/two.cc 'extern  int two ;'
git add wire
commits 0 'one.cc' 'wire: one of two' wire/one.cc

source_file nowhere/x.cc 'extern int x;'
git add nowhere
commits 1 'nowhere/x.cc: no room' 'nowhere: a folder that is no room'

# A program that is not installed: says which, and what installs it.
mkdir "$directory/.programs"
ln -s /usr/bin/* "$directory/.programs/"
rm "$directory/.programs/clang-format-14"
source_file wire/unseen.cc 'extern int unseen;'
git add wire
PATH=$directory/.programs commits 1 'not installed: clang-format-14; sudo tools/deps --lint' 'wire: with nothing to look at it'
rm -r "$directory/.programs"

for message in 'Review: tests' 'Merge what I had' 'Revert to what it was' 'no room' "wire: $(printf '%70s' '' | tr ' ' x)" 'Wire changes a lot' $'wire: two\nlines'; do
  commits 1 'not committed' "$message" --allow-empty
done
for message in 'wire, tests/e2e: of two rooms' $'README: why\n\nBecause.' 'Revert "wire: a good one"' 'fixup! wire: a good one'; do
  commits 0 main "$message" --allow-empty
done

git worktree add --quiet "$directory/linked" -b linked
cd linked || exit 1
source_file wire/bad.cc 'extern  int bad ;'
git add wire
commits 1 'clang-format is not content' 'wire: from a linked work tree'
exit $((failures > 0))
