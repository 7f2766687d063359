"""What is right: SGLang 0.5.14's `verified_id` relay, and a language model that makes every slip visible.

Nothing here imports SGLang or another part of this repository; torch is all it needs.
"""
