// SPDX-License-Identifier: BSD-2-Clause
// Keeps the kernel from moving a file in memory (memfd_create) together into a large page. Whoever has the file may ask
// for that, without a right to write to it and whatever its seals are (MADV_COLLAPSE, Linux 6.1); and who touches the
// file meanwhile waits, 10 us for each mapping of it, of which there may be a million. Nothing is moved where one of
// the pages is in use by somebody else than those who map it: here the first one is in a pipe as well.
#pragma once

#include "base/unique_fd.h"

namespace uroce {

// The page at `address`, which is made if it is not there: it is held as long as `hold` is open anywhere. 0 or an errno
// value. To be done before somebody may have it moved: it would wait, too.
int hold_page(const void* address, UniqueFd& hold);
// The first page of `file`, which is not empty. Who can write to it may still cut the page out
// (FALLOC_FL_PUNCH_HOLE), and put another one there, until it is sealed.
int hold_first_page(int file, UniqueFd& hold);

}  // namespace uroce
