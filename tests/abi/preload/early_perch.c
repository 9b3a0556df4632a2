// SPDX-License-Identifier: BSD-2-Clause
/* Brings early_bird.c into a program. */
int perch(void) {
  return 0;
}
