/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * Runs a fuzz target on the inputs in the given files: takes the place of libFuzzer, which needs a nightly
 * Rust and a C++ compiler. A target that finds something aborts.
 */
#include <stdint.h>
#include <stdio.h>

#define MAX_BYTES (1 << 20)

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerInitialize(int *count, char ***arguments);

int main(int count, char **arguments)
{
	static uint8_t input[MAX_BYTES];

	LLVMFuzzerInitialize(&count, &arguments);
	for (int at = 1; at < count; at++) {
		FILE *file = fopen(arguments[at], "rb");
		size_t size;

		if (!file) {
			perror(arguments[at]);
			return 2;
		}
		size = fread(input, 1, sizeof(input), file);
		fclose(file);
		LLVMFuzzerTestOneInput(input, size);
	}
	return 0;
}
