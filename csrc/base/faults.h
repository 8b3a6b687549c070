/* Faults for tests: allocations of the core that fail when a test says so. Nothing else uses this.
 *
 * Ownership: none. Threads: begin and end by one thread while no other one allocates for the first time; the count is
 * everybody's. */
#ifndef DYCL_BASE_FAULTS_H
#define DYCL_BASE_FAULTS_H

void dycl_faults_begin(
    long nth,
    long how_many); /* the nth allocation from now on fails, counted from 0, and so do as many as make up how_many */
long dycl_faults_end(void); /* how many allocations were asked for since; none fails any more */

#endif
