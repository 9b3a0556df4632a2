// SPDX-License-Identifier: BSD-2-Clause
// Keeps the kernel from moving a file in memory (memfd_create) together into a large page. Whoever has the file may ask
// for that, without a right to write to it and whatever its seals are (MADV_COLLAPSE, Linux 6.1); and who touches the
// file meanwhile waits, 10 us for each mapping of it, of which there may be a million. Nothing is moved where one of
// the pages is in use by somebody else than those who map it: here the first one is in a pipe as well.
#pragma once

#include "base/unique_fd.h"

namespace uroce {

// The page at `address`, which is made if it is not there: it is held as long as `hold` is open anywhere. 0 or an errno
// value. To be done before anybody else has the file: it would wait, too.
int hold_page(void* address, UniqueFd& hold);
// The first page of `file`, which is not empty.
int hold_first_page(int file, UniqueFd& hold);

}  // namespace uroce
