/* The other side of examples/parity.rs: P, or P and Q, by ISA-L. A line asks (`xor|pq|copy STRIPS BYTES ROUNDS`), and the
 * answer is how many nanoseconds of CPU time the rounds took. */
#include <isa-l/raid.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static long long now(void)
{
	struct timespec t;
	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
	return t.tv_sec * 1000000000LL + t.tv_nsec;
}

int main(void)
{
	char what[8];
	int strips, bytes, rounds;
	while (scanf("%7s %d %d %d", what, &strips, &bytes, &rounds) == 4) {
		void **array = calloc(strips + 2, sizeof *array);
		for (int i = 0; i < strips + 2; i++) {
			if (posix_memalign(&array[i], 4096, bytes))
				return 1;
			memset(array[i], i * 37 + 1, bytes);
		}
		int failed = 0;
		long long start = now();
		for (int i = 0; i < rounds; i++) {
			if (what[0] == 'x')
				failed |= xor_gen(strips + 1, bytes, array);
			else if (what[0] == 'p')
				failed |= pq_gen(strips + 2, bytes, array);
			else
				memcpy(array[1], array[0], bytes);
		}
		printf("%lld\n", failed ? -1 : now() - start);
		fflush(stdout);
		for (int i = 0; i < strips + 2; i++)
			free(array[i]);
		free(array);
	}
	return 0;
}
