"""SQL carried out on a home: definitions that live on, questions, subscriptions. `Session` is the way in."""
