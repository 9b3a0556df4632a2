// SPDX-License-Identifier: BSD-2-Clause
/* Nothing but the libraries it is linked with. */
int main(void) {
  return 0;
}
