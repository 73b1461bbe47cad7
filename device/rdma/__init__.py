"""The parts that every RDMA adapter has, whatever its registers and entries look like.

An engine is handed work that is already read and tells its face what came of it: a face is the
package of one card, which reads and writes the bytes that its drivers know.
"""
