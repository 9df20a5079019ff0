"""What looks at loaders, ours and others', from outside."""
